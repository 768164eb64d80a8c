"""The frontier of several indices against brute force: ties, negative contributions, budgets, forbidden choices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import random_link

from deploynas.errors import InputError
from deploynas.search import completion_bounds, following
from deploynas.search.dominance import undominated
from deploynas.search.indexed_frontier import IndexedNetworks, indexed_frontier, indexed_k_best
from deploynas.search.prefixes import IndexedProblem, IndexedStage
from deploynas.space.link import Link


def random_problem(seed: int, indices: int) -> IndexedProblem:
    """At most three stages of three blocks and three configurations; every second problem is full of ties."""
    rng = np.random.default_rng(seed)
    whole = bool(rng.integers(2))

    def numbers(*shape: int) -> np.ndarray:
        return rng.integers(-2, 3, size=shape).astype(float) if whole else rng.normal(size=shape)

    stages = []
    for _ in range(rng.integers(1, 4)):
        blocks, configs = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        depths = np.flatnonzero(rng.random(blocks) < 0.6) + 1
        if not len(depths):
            depths = np.array([blocks])
        masks = tuple(rng.random(configs) < 0.8 for _ in range(blocks)) if rng.random() < 0.4 else None
        stages.append(
            IndexedStage(
                cost=tuple(np.abs(numbers(configs)) for _ in range(blocks)),
                values=tuple(numbers(indices, configs) for _ in range(blocks)),
                bonus={int(d): numbers(indices) for d in depths},
                allowed=masks,
            )
        )
    budget = float(rng.uniform(0, 12)) if rng.random() < 0.4 else math.inf
    return IndexedProblem(tuple(stages), numbers(indices), random_link(rng, indices), float(rng.uniform(0, 2)), budget)


Network = tuple[float, tuple[float, ...], float]  # cost, indices, accuracy


def network(problem: IndexedProblem, choices: tuple[tuple[int, ...], ...]) -> Network:
    """Added up one after the other, as a prediction does."""
    cost, values = 0.0, problem.base.copy()
    for stage, choice in zip(problem.stages, choices, strict=True):
        for b, c in enumerate(choice):
            cost += float(stage.cost[b][c])
            values = values + stage.values[b][:, c]
        values = values + stage.bonus[len(choice)]
    return problem.fixed + cost, tuple(values.tolist()), float(problem.link(values[None])[0])


def every_network(problem: IndexedProblem) -> tuple[np.ndarray, np.ndarray]:
    """Cost and accuracy of all networks within the budget, nothing dropped on the way."""
    cost, values = np.zeros(1), problem.base[:, None]
    for stage in problem.stages:
        ends: list[tuple[np.ndarray, np.ndarray]] = [(np.empty(0), np.empty((len(problem.base), 0)))]
        for depth, bonus in stage.bonus.items():
            for choice in itertools.product(*(stage.configs(b).tolist() for b in range(depth))):
                end_cost, end_values = cost, values
                for b, c in enumerate(choice):
                    end_cost = end_cost + stage.cost[b][c]
                    end_values = end_values + stage.values[b][:, c, None]
                ends.append((end_cost, end_values + bonus[:, None]))
        cost, values = np.concatenate([e[0] for e in ends]), np.concatenate([e[1] for e in ends], axis=1)
    total = problem.fixed + cost
    fits = total <= problem.budget
    return total[fits], problem.link(values[:, fits].T)


def brute_frontier(problem: IndexedProblem) -> list[tuple[float, float]]:
    best, front = -math.inf, []
    cost, accuracy = every_network(problem)
    for i in np.lexsort((-accuracy, cost)):
        if accuracy[i] > best:
            best = accuracy[i]
            front.append((cost[i], accuracy[i]))
    return front


def assert_real(problem: IndexedProblem, found: IndexedNetworks) -> None:
    """Every network is what it is said to be."""
    for i in range(len(found)):
        cost, values, accuracy = network(problem, found.choices(i))
        assert (cost, values, accuracy) == (found.cost[i], tuple(found.values[:, i]), found.accuracy[i])


def check(problem: IndexedProblem) -> None:
    found = indexed_frontier(problem)
    assert list(zip(found.cost.tolist(), found.accuracy.tolist(), strict=True)) == brute_frontier(problem)
    assert_real(problem, found)


@pytest.fixture
def bounds_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny problems have too few prefixes for bounds: use them nevertheless, with tables that are quick to make."""
    small = {"FEW": 0, "PAIRS": 64, "COST_STEPS": 16, "U_LEVELS": 24, "V_LEVELS": 12, "RIVALS": 8}
    for name, value in small.items():
        monkeypatch.setattr(completion_bounds, name, value)
    monkeypatch.setattr(following, "LONGEST", 4)


@pytest.mark.parametrize("indices", [1, 2, 3])
def test_the_frontier_is_that_of_brute_force(indices: int) -> None:
    for seed in range(1000):
        check(random_problem(seed, indices))


def test_bounds_never_change_the_frontier(bounds_from_the_start: None) -> None:
    for seed in range(1000):
        check(random_problem(seed, 2))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(1_000_000, 2**40), indices=st.integers(1, 3))
def test_the_frontier_of_any_problem(seed: int, indices: int) -> None:
    check(random_problem(seed, indices))


@pytest.mark.parametrize("indices", [1, 2, 3])
def test_the_k_best_are_those_of_brute_force(indices: int) -> None:
    for seed in range(250):
        check_k_best(random_problem(seed, indices), 1 + seed % 7)


def test_bounds_never_change_the_k_best(bounds_from_the_start: None) -> None:
    for seed in range(400):
        check_k_best(random_problem(seed, 2), 1 + seed % 7)


def check_k_best(problem: IndexedProblem, count: int) -> None:
    found = indexed_k_best(problem, count)
    assert found.accuracy.tolist() == np.sort(every_network(problem)[1])[::-1][:count].tolist()
    assert_real(problem, found)
    assert len({found.choices(i) for i in range(len(found))}) == len(found)


def test_bounds_drop_most_prefixes_of_a_large_problem_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    stages = []
    for _ in range(4):
        cost = tuple(rng.uniform(1, 4, size=6) for _ in range(3))
        values = tuple(np.stack([np.sqrt(c), c]) * rng.uniform(0.5, 1.5, size=(2, 6)) for c in cost)
        stages.append(IndexedStage(cost, values, {2: np.zeros(2), 3: rng.normal(size=2)}))
    link = Link(
        0.0, np.array([0.1, 0.1]), np.array([1.0, 1.0]), np.array([[0.5, 0.0], [0.1, 0.2]]), np.array([-5.0, -4])
    )
    problem = IndexedProblem(tuple(stages), np.zeros(2), link)
    monkeypatch.setattr(completion_bounds, "FEW", 10**9)
    without = indexed_frontier(problem)
    monkeypatch.setattr(completion_bounds, "FEW", 500)
    bounded = indexed_frontier(problem)
    assert len(bounded.prefixes) < len(without.prefixes) / 2
    assert np.array_equal(bounded.cost, without.cost)
    assert np.array_equal(bounded.accuracy, without.accuracy)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), indices=st.integers(1, 3), keep=st.integers(1, 4), levels=st.integers(1, 30))
def test_what_fewer_than_keep_others_dominate_is_kept(seed: int, indices: int, keep: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    cost, values = rng.integers(levels, size=200) * 1.0, rng.integers(levels, size=(indices, 200)) * 1.0
    kept = undominated(cost, values, keep)
    no_more = cost[:, None] <= cost[None, :]
    no_less = (values[:, :, None] >= values[:, None, :]).all(axis=0)
    beats = no_more & no_less  # [one, other]
    equal = beats & beats.T
    beats &= ~equal | (np.arange(200)[:, None] < np.arange(200)[None, :])
    needed = np.flatnonzero(beats.sum(axis=0) < keep)
    assert set(needed) <= set(kept)
    assert np.all(np.diff(cost[kept]) >= 0)
    if keep == 1:
        assert set(needed) == set(kept)


def test_a_problem_that_does_not_fit_together_is_refused() -> None:
    stage = IndexedStage((np.ones(2),), (np.ones((2, 2)),), {1: np.zeros(2)})
    with pytest.raises(InputError, match="needs 1 values"):
        IndexedProblem((stage,), np.zeros(1), lambda u: u[:, 0])
    with pytest.raises(InputError, match="do not fit 1 blocks"):
        IndexedProblem((IndexedStage(stage.cost, stage.values, {2: np.zeros(2)}),), np.zeros(2), lambda u: u[:, 0])
    with pytest.raises(InputError, match="not negative"):
        IndexedProblem((IndexedStage((-np.ones(2),), stage.values, stage.bonus),), np.zeros(2), lambda u: u[:, 0])
