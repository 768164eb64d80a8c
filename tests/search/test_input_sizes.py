"""Searching where the input size is decided too: every size has costs of its own, and the answer is still proven."""

from __future__ import annotations

import math
from dataclasses import replace

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
    random_table,
    tiny_space,
)

import deploynas as dn
from deploynas.accuracy.indexed import Index, SizeDeviation
from deploynas.costs import Costs
from deploynas.errors import GateError
from deploynas.search.every_size import solve
from deploynas.search.feasibility import cost_ranges
from deploynas.search.problem import Limit, Problem
from deploynas.search.solver import SOLVERS

SIZES = (16, 20, 28)
quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=400, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(0, 2), st.booleans(), st.booleans())
def test_the_best_of_three_sizes_equals_brute_force_to_the_last_bit(data, indices, several, by_size):
    space, estimator, tables = data.draw(instances(tables=2, indices=indices, sizes=SIZES, by_size=by_size))
    limits = [Limit(table, data.draw(budgets_of(space, table))) for table in (tables if several else tables[:1])]
    expected = brute_force(space, estimator, limits)
    if not expected:
        with pytest.raises(GateError):
            dn.search(space, estimator, limits)
        return
    best = dn.search(space, estimator, limits)
    assert best.optimal
    # several limits at once are solved in floating point by an integer program
    assert best.score == pytest.approx(expected[0][0], abs=1e-6 if several else 0)
    assert all(limit.of.predict(best.architecture) <= limit.budget for limit in limits)


@settings(max_examples=300, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(0, 2), st.booleans())
def test_the_frontier_of_three_sizes_equals_brute_force(data, indices, by_size):
    space, estimator, (table,) = data.draw(instances(indices=indices, sizes=SIZES, by_size=by_size))
    points = {(table.predict(a), estimator.predict(a)) for a in space.enumerate()}
    expected, best = [], -math.inf
    for latency, accuracy in sorted(points, key=lambda p: (p[0], -p[1])):
        if accuracy > best:
            expected.append((latency, accuracy))
            best = accuracy
    frontier = dn.frontier(space, estimator, table)
    assert [(p.latency_ms, p.accuracy) for p in frontier] == expected
    for point in frontier:
        assert table.predict(point.architecture) == point.latency_ms
        assert estimator.predict(point.architecture) == point.accuracy


@settings(max_examples=100, deadline=None, suppress_health_check=quiet)
@given(st.data(), st.integers(2, 12), st.integers(0, 2))
def test_the_k_best_come_from_all_sizes(data, top, indices):
    space, estimator, (table,) = data.draw(instances(indices=indices, sizes=SIZES, by_size=True))
    limits = [Limit(table, data.draw(budgets_of(space, table)))]
    expected = brute_force(space, estimator, limits)[:top]
    if not expected:
        return
    found = dn.search(space, estimator, limits, top=top)
    assert [result.score for result in found] == [score for score, _ in expected]
    assert len({result.architecture for result in found}) == len(found)


@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_keeps_limits_of_latency_macs_and_memory(solver, by_size):
    space = tiny_space([((1, 2), 3), ((1, 3), 2)], SIZES)
    estimator, (table,) = random_instance(space, 1)
    if by_size:  # what decisions add differs between sizes
        estimator = random_indexed(space, 1, indices=1, by_size=True)
    costs = [Costs.of(space, network) for network in space.enumerate()]
    limits = [
        Limit(table, 4.0),
        Limit("macs", float(np.quantile([own.macs for own in costs], 0.6))),
        Limit("peak_memory_bytes", float(np.quantile([own.peak_memory_bytes for own in costs], 0.7))),
    ]
    best = brute_force(space, estimator, limits)[0][0]
    problem = Problem.build(space, estimator, limits)
    found = solve(problem, solver)[0]
    assert problem.allows(found.architecture) and found.score <= best + 1e-12
    if found.optimal:
        assert found.score == pytest.approx(best, abs=1e-9)
    assert solver not in ("exact", "milp") or found.optimal


def test_a_quadratic_estimator_may_couple_the_input_size_with_blocks():
    space = tiny_space([((1, 2), 2), ((1, 2), 2)], SIZES)
    estimator, (_, (table,)) = random_quadratic(space, 3, 60), random_instance(space, 3)
    limits = [Limit(table, 3.5)]
    assert dn.search(space, estimator, limits).score == pytest.approx(brute_force(space, estimator, limits)[0][0])


def test_an_infeasible_budget_names_the_fastest_network_of_any_size():
    space = tiny_space([((1, 2), 2)], SIZES)
    estimator, (table,) = random_instance(space, 5)
    fastest = min(space.enumerate(), key=table.predict)
    with pytest.raises(GateError, match="no network is within") as refused:
        dn.search(space, estimator, [Limit(table, 0.5)])
    assert str(fastest) in refused.value.message and "@" in str(fastest)


def test_memory_that_only_small_inputs_keep_leaves_the_small_inputs():
    space = tiny_space([((1, 2), 2)], SIZES)
    estimator, (table,) = random_instance(space, 6)
    smallest = max(
        Costs.of(space, network).peak_memory_bytes for network in space.enumerate() if network.size_index == 0
    )
    found = dn.search(space, estimator, [Limit(table, 100.0), Limit("peak_memory_bytes", smallest)], top=5)
    assert {result.architecture.size_index for result in found} == {0}


def test_ranges_of_costs_are_those_of_all_sizes():
    space = tiny_space([((1, 2), 2)], SIZES)
    estimator, (table,) = random_instance(space, 7)
    (found,) = cost_ranges(Problem.build(space, estimator, [Limit(table, 3.0)]))
    latencies = [table.predict(network) for network in space.enumerate()]
    assert (found.smallest, found.heaviest) == (min(latencies), max(latencies))
    assert min(latencies) < found.median < max(latencies)


@pytest.mark.parametrize("by_size", [False, True])
def test_two_indices_are_exact_with_sizes_under_several_limits(by_size):
    space = tiny_space([((1, 2), 2), ((1, 2), 2)], SIZES)
    estimator, (_, tables) = random_indexed(space, 2, indices=2, by_size=by_size), random_instance(space, 2, tables=2)
    limits = [Limit(table, 3.4) for table in tables]
    best = dn.search(space, estimator, limits)
    assert best.optimal and best.score == pytest.approx(brute_force(space, estimator, limits)[0][0], abs=1e-9)


@pytest.mark.parametrize("indices", [1, 2])
def test_at_a_size_the_score_is_the_sum_that_is_predicted(indices):
    space = tiny_space([((1, 2), 2), ((1, 3), 2)], SIZES)
    estimator = random_indexed(space, 4, indices, by_size=True)
    problem = Problem.build(space, estimator, [])
    for network in space.enumerate():
        apart = problem.each_size()[network.size_index]
        assert apart.score(network) == problem.score(network) == estimator.predict(network)


def test_the_best_block_may_differ_between_sizes():
    space = tiny_space([((1,), 2)], SIZES)
    nothing, deviations = random_indexed(space, 0, indices=1), []
    for i in range(3):  # the first configuration at the smallest size, the second at the others
        better = [1.0, 0.0] if i == 0 else [0.0, 1.0]
        deviations.append(SizeDeviation([[0.0], [0.0]], [[better], [[0.0] * 3]]))
    index = Index.from_arrays(space, 0.0, [[0.0], [0.0]], [[[0.0] * 2], [[0.0] * 3]], by_size=deviations)
    estimator = replace(nothing, indices=(index,))
    table = random_table(space, lambda: 1.0, lambda: 1.0)
    found = dn.search(space, estimator, [Limit(table, 9.0)], top=6)
    assert {(r.architecture.choices[0][0], r.architecture.size_index) for r in found[:3]} == {(0, 0), (1, 1), (1, 2)}
