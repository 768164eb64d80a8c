"""Two sums behind a link under several limits, against brute force: by comparing prefixes, and by intervals."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_problems import brute_force, like_blocks, like_depths, random_indexed, random_link, tiny_space

from deploynas.accuracy.indexed import Index, IndexedEstimator
from deploynas.latency.table import LatencyTable
from deploynas.search import several_limits
from deploynas.search.exact import Exact
from deploynas.search.problem import Limit, Problem
from deploynas.space import Space


def random_problem(seed: int, indices: int = 2) -> tuple[Space, IndexedEstimator, list[Limit]]:
    """Few values make ties; budgets are often exactly what a network costs."""
    rng = np.random.default_rng(seed)
    space = tiny_space([((1, 2), 3), ((1, 2, 3), 2), ((2,), 2)] if seed % 2 else [((1, 3), 3), ((1, 2), 2)])

    def worth() -> float:
        return float(rng.choice([-1.0, 0.0, 1.0]) if seed % 3 else rng.uniform(-0.1, 0.1))

    def latency() -> float:
        return float(rng.choice([0.0, 0.1, 0.2, 0.3, 0.7]) if seed % 4 else rng.uniform(0, 5))

    sums = [Index.from_arrays(space, 0.5, like_depths(space, worth), like_blocks(space, worth)) for _ in range(indices)]
    tables = [LatencyTable.from_arrays(space, latency(), like_blocks(space, latency)) for _ in range(2 + seed % 2)]
    networks = list(space.enumerate())
    within = networks[rng.integers(len(networks))]
    limits = [Limit(t, max(1e-6, t.predict(within) * float(rng.choice([1.0, 1.0, 1.2])))) for t in tables]
    return space, IndexedEstimator(space, tuple(sums), random_link(rng, indices)), limits


def check(seed: int, indices: int = 2, tolerance: float = 0.0) -> None:
    space, estimator, limits = random_problem(seed, indices)
    expected, top = brute_force(space, estimator, limits), (1, 3, 20)[seed % 3]
    if not expected:  # 1e-6 is less than what is fixed
        return
    found = Exact().solve(Problem.build(space, estimator, limits), top)
    scores = [score for score, _ in expected[:top]]
    assert [s.score for s in found] == (scores if not tolerance else pytest.approx(scores, abs=tolerance))
    assert all(s.optimal and s.gap == 0 for s in found)
    assert len({s.architecture for s in found}) == len(found)
    assert all(limit.of.predict(s.architecture) <= limit.budget for limit in limits for s in found)


@pytest.mark.parametrize("indices", [2, 3])
def test_the_best_networks_are_those_of_brute_force(indices):
    for seed in range(60):
        check(seed, indices)


def test_bounds_never_change_the_answer(monkeypatch):
    monkeypatch.setattr(several_limits, "FEW", 0)
    for seed in range(10):
        check(seed)


def test_where_lists_are_too_long_intervals_prove_the_same(monkeypatch):
    monkeypatch.setattr(several_limits, "MOST", 3)
    for seed in range(10):
        check(seed, tolerance=1e-7)


def test_when_time_is_up_the_gap_is_stated_and_true(monkeypatch):
    monkeypatch.setattr(several_limits, "MOST", 3)
    space = tiny_space([((1, 3), 3), ((1, 2, 3), 3), ((2,), 2)])
    estimator, rng = random_indexed(space, 3, 2), np.random.default_rng(3)
    tables = [LatencyTable.from_arrays(space, 1.0, like_blocks(space, lambda: rng.uniform(0.2, 1))) for _ in range(2)]
    networks = list(space.enumerate())
    limits = [Limit(t, float(np.median([t.predict(a) for a in networks]))) for t in tables]
    problem = Problem.build(space, estimator, limits)
    (found,) = Exact(time_limit_s=0.0).solve(problem)
    best = brute_force(space, estimator, limits)[0][0]
    assert problem.allows(found.architecture)
    assert not found.optimal and found.gap is not None and found.score <= best <= found.score + found.gap
    (proven,) = Exact().solve(problem)
    assert proven.optimal and proven.score == pytest.approx(best, abs=1e-9)
