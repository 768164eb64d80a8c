"""Ensembles within one budget: draws, particles and exact sets against enumeration."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import tiny_space

from deploynas.errors import GateError, InputError
from deploynas.latency.table import LatencyTable
from deploynas.search.best_set import best_set, loss
from deploynas.search.budgeted_draws import BudgetedDraws
from deploynas.search.joint_budget import JointBudget, Running, require_members
from deploynas.search.nearest_networks import most_likely, nearest_networks
from deploynas.search.svgd import SvgdSettings, direction, particles, relaxed_score
from deploynas.space import Architecture, Space
from deploynas.space.softmax import log_softmax

SPACE = tiny_space([((1, 2), 2), ((1,), 3)])
BUDGET_MS = 4.0  # a thousandth of it is the unit of the tables' latencies, so that nothing is rounded
both = pytest.mark.parametrize("running", ["serial", "parallel"])


def networks() -> list[Architecture]:
    return [SPACE.architecture(choices) for choices in SPACE.decisions.enumerate()]


def table(seed: int = 0, scale: int = 1) -> LatencyTable:
    rng, unit = np.random.default_rng(seed), BUDGET_MS / 1000
    groups = SPACE.decisions.groups
    blocks = [rng.integers(20, 300, (len(own.choices), len(own.choices[0].options))) * scale * unit for own in groups]
    return LatencyTable.from_arrays(SPACE, 50 * scale * unit, [own.tolist() for own in blocks])


def log_p(seed: int = 0) -> np.ndarray:
    decisions = SPACE.decisions
    return log_softmax(decisions, np.random.default_rng((seed, 1)).normal(0, 1, len(decisions)))


def probability(network: Architecture, own: np.ndarray) -> float:
    return float(np.exp(SPACE.decisions.active(SPACE.rows([network])) @ own)[0])


def budget(running: Running, budget_ms: float = BUDGET_MS, seed: int = 0) -> JointBudget:
    return JointBudget.of(SPACE, table(seed), budget_ms, running)


def test_the_distribution_of_a_networks_latency_is_the_enumerated_one() -> None:
    draws = BudgetedDraws(SPACE, np.exp(log_p()), budget("serial"))
    expected = np.zeros(len(draws.latencies))
    for network in networks():
        bins = round(table().predict(network) / draws.unit)
        if bins < len(expected):
            expected[bins] += probability(network, log_p())
    assert draws.latencies / draws.latencies.sum() == pytest.approx(expected / expected.sum(), abs=1e-12)


@both
def test_draws_are_those_of_the_posterior_given_the_budget(running: Running) -> None:
    """Latencies are so large that some pairs are over the budget."""
    limit = JointBudget.of(SPACE, table(scale=1 if running == "serial" else 2), BUDGET_MS, running)
    pairs = [pair for pair in itertools.permutations(networks(), 2) if limit.allows(pair)]
    assert len(pairs) < len(list(itertools.permutations(networks(), 2)))
    weight = np.array([np.prod([probability(one, log_p()) for one in pair]) for pair in pairs])
    expected = weight / weight.sum()
    drawn = BudgetedDraws(SPACE, np.exp(log_p()), limit).ensembles(2, 1500, np.random.default_rng(0))
    assert len(drawn) == 1500 and set(drawn) <= set(pairs)
    count = Counter(drawn)
    observed = np.array([count[pair] for pair in pairs]) / 1500
    # the mean of the total variation of a multinomial is below sum sqrt(p / n) / 2
    assert np.abs(observed - expected).sum() / 2 < 1.3 * np.sqrt(expected / 1500).sum() / 2
    latencies = np.array([limit.latency_ms(pair) for pair in pairs])
    deviation = (expected @ latencies**2 - (expected @ latencies) ** 2) ** 0.5
    assert observed @ latencies == pytest.approx(expected @ latencies, abs=4 * deviation / 1500**0.5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["serial", "parallel"]), st.integers(2, 3), st.floats(1.6, 9.0))
def test_the_budget_is_never_exceeded(seed: int, running: Running, members: int, budget_ms: float) -> None:
    limit, rng = JointBudget.of(SPACE, table(seed), budget_ms, running), np.random.default_rng(seed)
    try:
        drawn = BudgetedDraws(SPACE, np.exp(log_p(seed)), limit).ensembles(members, 4, rng)
    except GateError:
        drawn = []
    near = nearest_networks(SPACE, rng.normal(size=(members, len(SPACE.decisions))), limit)
    for found in [*drawn, *([near] if near else [])]:
        each = [table(seed).predict(one) for one in found]
        assert (sum(each) if running == "serial" else max(each)) <= budget_ms
    fastest = min(table(seed).predict(one) for one in networks())
    if (fastest * members if running == "serial" else fastest) > budget_ms * (1 + 1e-12):
        assert near is None and not drawn
        with pytest.raises(GateError, match="even if each is the fastest"):
            limit.require_feasible(SPACE, members)


def test_repulsion_is_that_of_plain_descent_times_one_plus_delta() -> None:
    rng = np.random.default_rng(0)
    x, score = rng.normal(size=(5, 7)), rng.normal(size=(5, 7))
    attraction = direction(x, score, 0.0) - direction(x, np.zeros_like(score), 0.0)
    repulsion = direction(x, np.zeros_like(score), 0.0)
    for delta in (-2.0, -1.0, -0.3, 0.0, 1.0):
        assert direction(x, score, delta) == pytest.approx(attraction + (1 + delta) * repulsion, abs=1e-12)
    assert direction(x, np.zeros_like(score), -1.0) == pytest.approx(np.zeros_like(x), abs=1e-15)


def test_the_direction_is_as_defined_term_by_term() -> None:
    rng = np.random.default_rng(1)
    x, score, h, delta, step = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), 1.7, 0.6, 1e-6

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.exp(-((a - b) ** 2).sum() / h))

    def slope(at: np.ndarray, of) -> np.ndarray:
        axes = step * np.eye(len(at))
        return np.array([(of(at + axis) - of(at - axis)) / (2 * step) for axis in axes])

    for i in range(3):
        terms = [
            k(x[j], x[i]) * score[j]
            + slope(x[j], lambda at, i=i: k(at, x[i]))
            - delta * slope(x[i], lambda at, j=j: k(x[j], at))
            for j in range(3)
        ]
        assert direction(x, score, delta, h)[i] == pytest.approx(np.mean(terms, axis=0), abs=1e-8)


def test_one_particle_climbs_the_density_alone() -> None:
    """Proposition 5.2: of a single Gaussian it finds the top, whatever delta."""
    top = np.array([[0.3, -1.2]])
    for delta in (-2.0, 0.0, 1.0):
        found = particles(lambda x: top - x, np.zeros((1, 2)), SvgdSettings(delta, iterations=400))
        assert found == pytest.approx(top, abs=1e-6)


def test_more_repulsion_puts_particles_further_apart() -> None:
    start = np.random.default_rng(2).normal(size=(4, 2))
    spread = [np.ptp(particles(lambda x: -x, start, SvgdSettings(delta)), axis=0).sum() for delta in (-1.0, 0.0, 1.0)]
    assert spread[0] < 1e-3 < spread[1] < spread[2]


def test_the_relaxed_density_has_the_slope_of_its_mixtures() -> None:
    decisions, p, step = SPACE.decisions, np.exp(log_p()), 1e-6
    x = np.random.default_rng(3).normal(size=(1, len(decisions)))

    def log_density(at: np.ndarray) -> float:
        total = 0.0
        for where in decisions.slices:
            corners = np.eye(where.stop - where.start)
            gaussians = np.exp(-((at[where] - corners) ** 2).sum(1) / (2 * len(corners)))
            total += float(np.log(p[where] @ gaussians))
        return total

    axes = step * np.eye(len(decisions))
    slopes = [(log_density(x[0] + axis) - log_density(x[0] - axis)) / (2 * step) for axis in axes]
    assert relaxed_score(decisions, p)(x)[0] == pytest.approx(slopes, abs=1e-8)


def test_without_a_budget_every_decision_takes_the_option_next_to_the_point() -> None:
    decisions = SPACE.decisions
    points = np.random.default_rng(4).normal(size=(3, len(decisions)))
    found = nearest_networks(SPACE, points, budget("serial", 1e6))
    rows = [[int(np.argmin(((p[w] - np.eye(w.stop - w.start)) ** 2).sum(1))) for w in decisions.slices] for p in points]
    assert found == tuple(SPACE.architectures(np.array(rows)))


@both
@pytest.mark.parametrize("seed", range(4))
def test_within_a_budget_they_are_the_nearest_of_all_pairs(running: Running, seed: int) -> None:
    decisions, limit = SPACE.decisions, JointBudget.of(SPACE, table(seed), 2.6, running)
    points = np.random.default_rng(seed).normal(size=(2, len(decisions)))

    def behind(network: Architecture, point: np.ndarray) -> float:
        """How much further away than the nearest, over decisions that count; halved."""
        row = SPACE.rows([network])
        best = np.concatenate([np.full(w.stop - w.start, point[w].max()) for w in decisions.slices])
        return float((decisions.active(row)[0] * (best - point)).sum())

    def both_behind(pair: tuple[Architecture, ...]) -> float:
        return sum(behind(network, point) for network, point in zip(pair, points, strict=True))

    pairs = [pair for pair in itertools.product(networks(), repeat=2) if limit.allows(pair)]
    found = nearest_networks(SPACE, points, limit)
    assert bool(pairs) == (found is not None)
    if found:
        assert limit.allows(found)
        assert both_behind(found) == pytest.approx(min(map(both_behind, pairs)), abs=1e-9)


def test_the_most_likely_network_of_every_latency_is_the_enumerated_one() -> None:
    front = most_likely(SPACE, log_p(), budget("serial", 2.0))
    for point in front:
        within = [one for one in networks() if table().predict(one) <= point.latency_ms]
        assert probability(point.architecture, log_p()) == pytest.approx(max(probability(n, log_p()) for n in within))


@both
@pytest.mark.parametrize("members", [2, 3])
def test_the_exact_set_is_the_best_of_all(running: Running, members: int) -> None:
    rng = np.random.default_rng(members)
    for limit in (1.1, 1.6, 2.2, 5.0):
        right, latency = rng.uniform(0.01, 0.99, (9, 25)), rng.uniform(0.3, 1.0, 9)
        together = {
            one: sum(latency[list(one)]) if running == "serial" else max(latency[list(one)])
            for one in itertools.combinations(range(9), members)
        }
        within = [one for one, ms in together.items() if ms <= limit]
        found, tried = best_set(right, latency, members, running, limit)
        assert tried == len(within) and (found is None) == (not within)
        if found:
            assert found in within
            assert loss(right[list(found)]) == pytest.approx(min(loss(right[list(one)]) for one in within))


def test_sizes_beyond_reason_are_refused() -> None:
    for members in (6, 7):
        with pytest.raises(InputError, match=r"do not rank larger ones .*-0\.12"):
            require_members(members)
    with pytest.raises(InputError, match="two members or more"):
        require_members(1)
    with pytest.raises(InputError, match="two or three networks"):
        best_set(np.ones((5, 3)), [1.0] * 5, 4, "serial", 10.0)


def test_an_open_input_size_is_refused(sized: Space) -> None:
    with pytest.raises(InputError, match="leaves the input size open"):
        JointBudget.of(sized, table(), 1.0, "serial")
