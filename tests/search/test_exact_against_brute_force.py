"""The exact solvers against enumeration: thousands of small problems with all that makes them nasty."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_problems import (
    brute_force,
    budgets_of,
    instances,
    random_indexed,
    random_instance,
    random_quadratic,
    tiny_space,
)

import deploynas as dn
from deploynas.errors import GateError
from deploynas.search.milp import Milp
from deploynas.search.problem import Limit, Problem

quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def check_one_limit(data, indices: int) -> None:
    space, estimator, (table,) = data.draw(instances(indices=indices))
    limits = [Limit(table, data.draw(budgets_of(space, table)))]
    expected = brute_force(space, estimator, limits)
    if not expected:
        with pytest.raises(GateError):
            dn.search(space, estimator, limits)
        return
    best = dn.search(space, estimator, limits)
    assert best.accuracy == expected[0][0] == estimator.predict(best.architecture)
    assert best.latency_ms == table.predict(best.architecture) <= limits[0].budget
    assert best.optimal


@settings(max_examples=3000, deadline=None, suppress_health_check=quiet)
@given(st.data())
def test_one_limit_equals_brute_force_to_the_last_bit(data):
    check_one_limit(data, indices=0)


@settings(max_examples=300, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(1, 2))
def test_one_limit_on_sums_behind_a_link_equals_brute_force_to_the_last_bit(data, indices):
    check_one_limit(data, indices)


def check_frontier(instance) -> None:
    space, estimator, (table,) = instance
    points = {(table.predict(a), estimator.predict(a)) for a in space.enumerate()}
    expected, best = [], -math.inf
    for latency, accuracy in sorted(points, key=lambda p: (p[0], -p[1])):
        if accuracy > best:
            expected.append((latency, accuracy))
            best = accuracy
    found = dn.frontier(space, estimator, table)
    assert [(p.latency_ms, p.accuracy) for p in found] == expected
    for point in found:
        assert table.predict(point.architecture) == point.latency_ms
        assert estimator.predict(point.architecture) == point.accuracy


@settings(max_examples=1000, deadline=None, suppress_health_check=quiet)
@given(instances())
def test_the_frontier_is_every_undominated_point_and_nothing_else(instance):
    check_frontier(instance)


@settings(max_examples=300, deadline=None, suppress_health_check=quiet)
@given(st.integers(1, 2).flatmap(lambda indices: instances(indices=indices)))
def test_the_frontier_of_sums_behind_a_link_is_every_undominated_point_and_nothing_else(instance):
    check_frontier(instance)


def check_k_best(data, k: int, indices: int) -> None:
    space, estimator, (table,) = data.draw(instances(indices=indices))
    limits = [Limit(table, data.draw(budgets_of(space, table)))]
    expected = brute_force(space, estimator, limits)[:k]
    if not expected:
        return
    found = dn.search(space, estimator, limits, top=k)
    assert [r.accuracy for r in found] == [accuracy for accuracy, _ in expected]
    assert len({r.architecture for r in found}) == len(found)
    assert all(table.predict(r.architecture) <= limits[0].budget for r in found)


@settings(max_examples=1000, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(2, 12))
def test_the_k_best_equal_sorted_brute_force(data, k):
    check_k_best(data, k, indices=0)


@settings(max_examples=300, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(2, 12), st.integers(1, 2))
def test_the_k_best_by_sums_behind_a_link_equal_sorted_brute_force(data, k, indices):
    check_k_best(data, k, indices)


@settings(max_examples=250, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_several_limits_at_once_equal_brute_force(data, k, with_memory):
    space, estimator, tables = data.draw(instances(tables=2))
    limits = [Limit(table, data.draw(budgets_of(space, table))) for table in tables]
    costs = sorted(dn.Costs.of(space, a).params for a in space.enumerate())
    limits.append(Limit("params", costs[data.draw(st.integers(0, len(costs) - 1))]))
    if with_memory:
        peaks = sorted({dn.Costs.of(space, a).peak_memory_bytes for a in space.enumerate()})
        limits.append(Limit("peak_memory_bytes", data.draw(st.sampled_from(peaks))))
    expected = brute_force(space, estimator, limits)[:k]
    if not expected:
        with pytest.raises(GateError):
            dn.search(space, estimator, limits)
        return
    found = dn.search(space, estimator, limits, top=k)
    np.testing.assert_allclose([r.accuracy for r in found], [a for a, _ in expected], rtol=0, atol=1e-8)
    for result in found:
        for limit, use in zip(limits, result.limits, strict=True):
            assert use.predicted <= limit.budget


@pytest.mark.parametrize("indices", [0, 1, 2])
@settings(max_examples=250, deadline=None, suppress_health_check=quiet)
@given(data=st.data())
def test_a_limit_on_peak_memory_leaves_the_frontier_exact(data, indices):
    space, estimator, (table,) = data.draw(instances(indices=indices))
    peaks = sorted({dn.Costs.of(space, a).peak_memory_bytes for a in space.enumerate()})
    limits = [
        Limit(table, data.draw(budgets_of(space, table))),
        Limit("peak_memory_bytes", data.draw(st.sampled_from(peaks))),
    ]
    expected = brute_force(space, estimator, limits)
    if not expected:
        with pytest.raises(GateError):
            dn.search(space, estimator, limits)
        return
    assert dn.search(space, estimator, limits).accuracy == expected[0][0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pairs", [3, 40])
def test_estimators_that_couple_stages_equal_brute_force(seed, pairs):
    space = tiny_space([((1, 2), 3), ((1, 3), 2), ((2,), 2)])
    estimator = random_quadratic(space, seed, pairs)
    _, (table,) = random_instance(space, seed)
    latencies = sorted(table.predict(a) for a in space.enumerate())
    limits = [Limit(table, latencies[len(latencies) // 3])]
    expected = brute_force(space, estimator, limits)[:3]
    found = dn.search(space, estimator, limits, top=3)
    assert [r.accuracy for r in found] == pytest.approx([accuracy for accuracy, _ in expected], abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_learned_form_within_stages_is_separable_and_exact(seed):
    """Blocks worth something else at every depth: products of a block and its own stage's depth."""
    from deploynas.accuracy.quadratic import QuadraticEstimator
    from deploynas.space.coefficients import SeparableObjective

    space = tiny_space([((1, 2), 3), ((1, 3), 2), ((2,), 2)])
    decisions, rng = space.decisions, np.random.default_rng(seed)
    entries = [decisions.encoded_at[where] for where in decisions.slices]
    pairs = [
        (block, depth, rng.normal(0, 0.02))
        for s, b in decisions.places
        for block in entries[decisions.column(s, b)]
        for depth in entries[s]
    ]
    estimator = QuadraticEstimator.from_arrays(space, 0.6, rng.normal(0, 0.01, len(decisions)), pairs)
    _, (table,) = random_instance(space, seed)
    latencies = sorted(table.predict(a) for a in space.enumerate())
    limits = [Limit(table, latencies[len(latencies) // 2])]
    problem = Problem.build(space, estimator, limits)
    assert isinstance(problem.objective, SeparableObjective)
    expected = [accuracy for accuracy, _ in brute_force(space, estimator, limits)[:5]]
    assert [r.accuracy for r in dn.search(space, estimator, limits, top=5)] == pytest.approx(expected, abs=1e-12)
    assert [s.score for s in Milp().solve(problem, 5)] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_exact_equals_milp_on_full_size_spaces(imagenet, seed):
    estimator, (table,) = random_instance(imagenet, seed)
    points = dn.frontier(imagenet, estimator, table)
    for share in (0.1, 0.4, 0.8):
        budget = float(points.latencies_ms[0] + share * (points.latencies_ms[-1] - points.latencies_ms[0]))
        exact = dn.search(imagenet, estimator, [Limit(table, budget)])
        milp = dn.search(imagenet, estimator, [Limit(table, budget)], solver="milp")
        assert exact.accuracy == pytest.approx(milp.accuracy, abs=1e-9)
        assert exact.accuracy == points.best(budget).accuracy
        assert milp.optimal and milp.gap == 0


def test_k_best_of_a_full_size_space_equal_cuts_of_the_integer_form(imagenet):
    estimator, (table,) = random_instance(imagenet, 7)
    problem = Problem.build(imagenet, estimator, [Limit(table, 9.0)])
    ours = [r.accuracy for r in dn.search(imagenet, estimator, [Limit(table, 9.0)], top=6)]
    assert ours == pytest.approx([s.score for s in Milp().solve(problem, 6)], abs=1e-9)


def test_equal_problems_have_equal_answers_with_ties_everywhere():
    space = tiny_space([((1, 2), 3), ((1, 2), 3)])
    estimator = dn.BilinearEstimator.from_arrays(space, 0.5, [[0, 0]] * 2, [[[0.1] * 3] * 2] * 2)
    table = dn.LatencyTable.from_arrays(space, 1.0, [[[1.0] * 3] * 2] * 2)
    first, second = dn.frontier(space, estimator, table), dn.frontier(space, estimator, table)
    assert [p.architecture for p in first] == [p.architecture for p in second]
    # by hand: two to four blocks at 1 ms and 0.1 each; of equals the one that comes first
    assert [p.latency_ms for p in first] == [3.0, 4.0, 5.0]
    assert all(c == 0 for p in first for choice in p.architecture.choices for c in choice)


@settings(max_examples=60, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(1, 3))
def test_several_limits_on_one_sum_behind_a_link_equal_brute_force(data, k):
    space, estimator, tables = data.draw(instances(tables=2, indices=1))
    limits = [Limit(table, data.draw(budgets_of(space, table))) for table in tables]
    expected = brute_force(space, estimator, limits)[:k]
    if not expected:
        return
    found = dn.search(space, estimator, limits, top=k)
    # the integer form tells sums apart by about 1e-9, and no link here is steeper than 40
    np.testing.assert_allclose([r.accuracy for r in found], [a for a, _ in expected], rtol=0, atol=1e-6)
    assert all(r.optimal and r.gap == 0 for r in found)


def test_one_sum_behind_a_link_is_found_by_the_integer_form_too(imagenet):
    estimator = random_indexed(imagenet, 0, indices=1)
    _, (table,) = random_instance(imagenet, 0)
    exact, milp = (dn.search(imagenet, estimator, [Limit(table, 9.0)], solver=s, top=3) for s in ("exact", "milp"))
    assert [r.accuracy for r in exact] == pytest.approx([r.accuracy for r in milp], abs=1e-9)


def test_a_gap_in_the_index_is_one_in_the_score():
    from deploynas.search.by_index import solve_by_index
    from deploynas.search.solver import Solution

    space = tiny_space([((1, 2), 3)])
    estimator = random_indexed(space, 0, indices=1)
    objective, network = estimator.objective(), space.smallest()

    class Unsure:
        handles = ()

        def solve(self, problem, top, on_progress):
            return [Solution(network, problem.score(network), "unsure", optimal=False, gap=0.5)]

    problem = Problem.build(space, estimator, [])
    (solution,) = solve_by_index(Unsure(), problem, objective, 1, lambda fraction, what: None)
    index = objective.index.score(network)
    assert solution.score == estimator.predict(network)
    assert solution.score + solution.gap == pytest.approx(estimator.link(np.array([[index + 0.5]]))[0])
