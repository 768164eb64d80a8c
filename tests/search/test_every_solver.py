"""What holds for every solver, whatever it is asked."""

from __future__ import annotations

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
from deploynas.errors import GateError, InputError
from deploynas.search.bcfw import Bcfw
from deploynas.search.evolution import Evolution
from deploynas.search.problem import Limit, Problem
from deploynas.search.solver import SOLVERS, load_solver

every_solver = pytest.mark.parametrize("solver", SOLVERS)
SHORT = {"evolution": Evolution(generations=10, population=20)}


def solve(name: str, problem: Problem, top: int = 1):
    return (SHORT.get(name) or load_solver(name)).solve(problem, top)


@pytest.mark.parametrize(
    ("solver", "indices"),  # a plain sum for every solver (`best-of` is made of the others), or so many behind a link
    [(solver, 0) for solver in SOLVERS if solver != "best-of"]
    + [(solver, 1) for solver in ("exact", "milp", "bcfw", "evolution")]
    + [(solver, 2) for solver in ("exact", "bcfw", "evolution")],
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), several=st.booleans())
def test_no_network_is_ever_over_a_budget_and_no_claim_is_false(solver, indices, data, several):
    space, estimator, tables = data.draw(instances(tables=2, indices=indices))
    limits = [Limit(t, data.draw(budgets_of(space, t))) for t in (tables if several else tables[:1])]
    expected = brute_force(space, estimator, limits)
    problem = Problem.build(space, estimator, limits)
    if not expected:
        with pytest.raises(GateError):
            solve(solver, problem)
        return
    top = data.draw(st.sampled_from([1, 3, 20]))
    found = solve(solver, problem, top)
    assert len(found) == min(top, len(expected))  # fewer only if fewer exist
    assert len({s.architecture for s in found}) == len(found)
    assert [s.score for s in found] == sorted((s.score for s in found), reverse=True)
    for solution in found:
        assert all(limit.of.predict(solution.architecture) <= limit.budget for limit in limits)
        assert solution.score == pytest.approx(estimator.predict(solution.architecture), abs=1e-12)
        assert solution.score <= expected[0][0] + 1e-12
        assert type(solution.optimal) is bool and type(solution.score) is float  # they go into a file
    if found[0].optimal:
        assert found[0].score == pytest.approx(expected[0][0], abs=1e-6 if indices else 1e-8)  # links are steep
    if solver in ("exact", "milp"):
        assert found[0].optimal and found[0].gap == 0
    else:
        assert not found[0].optimal and found[0].gap is None


@pytest.mark.parametrize("solver", ["exact", "bcfw", "evolution"])  # the others take seconds at this size
def test_twenty_networks_are_twenty_different_ones(imagenet, solver):
    """Blocks beyond the depth have decisions too: networks that differ in those alone are one."""
    estimator, (table,) = random_instance(imagenet, 4)
    problem = Problem.build(imagenet, estimator, [Limit(table, 7.0)])
    found = solve(solver, problem, top=20)
    assert len({solution.architecture for solution in found}) == 20
    assert [solution.score for solution in found] == sorted((solution.score for solution in found), reverse=True)
    assert all(problem.allows(solution.architecture) for solution in found)


@every_solver
@pytest.mark.parametrize("count", [2, 19])
def test_a_budget_that_few_networks_keep_returns_them_all(solver, count):
    """They need not be near each other: here the fastest few of a table without a pattern."""
    space = tiny_space([((1, 3), 3), ((1, 2), 3), ((2,), 2)])
    estimator, tables = random_instance(space, 7, tables=2)
    latencies = sorted(tables[0].predict(a) for a in space.enumerate())
    limits = [Limit(tables[0], latencies[count - 1]), Limit(tables[1], 1e3)]
    for used in (limits[:1], limits):
        found = solve(solver, Problem.build(space, estimator, used), top=20)
        assert {s.architecture for s in found} == {a for _, a in brute_force(space, estimator, used)}
        assert len(found) == count


@every_solver
def test_full_size_with_three_limits(imagenet, solver):
    estimator, tables = random_instance(imagenet, 3, tables=2)
    limits = [Limit(tables[0], 9.0), Limit(tables[1], 9.5), Limit("params", 5.2e6)]
    problem = Problem.build(imagenet, estimator, limits)
    (solution,) = solve(solver, problem)
    assert problem.allows(solution.architecture)
    best = dn.search(imagenet, estimator, limits)
    assert best.optimal and solution.score <= best.accuracy + 1e-9
    if solution.optimal:
        assert solution.score == pytest.approx(best.accuracy, abs=1e-9)


@every_solver
def test_the_same_seed_gives_the_same_network(solver):
    space = tiny_space([((1, 2), 3), ((1, 3), 2)])
    estimator, (table,) = random_instance(space, 5)
    problem = Problem.build(space, estimator, [Limit(table, 4.0)])
    assert solve(solver, problem)[0] == solve(solver, problem)[0]


@pytest.mark.parametrize(
    ("solver", "indices"),
    [(solver, indices) for solver in SOLVERS for indices in (0, 1)]
    + [(solver, 2) for solver in ("exact", "bcfw", "evolution", "best-of")],
)
def test_without_a_limit_that_adds_up_the_best_network_of_all_is_found(solver, indices):
    space = tiny_space([((1, 2), 2), ((1, 2), 2)])
    estimator = random_indexed(space, 1, indices) if indices else random_instance(space, 1)[0]
    peak = max(dn.Costs.of(space, a).peak_memory_bytes for a in space.enumerate())
    (solution,) = solve(solver, Problem.build(space, estimator, [Limit("peak_memory_bytes", peak)]))
    assert solution.score == pytest.approx(max(estimator.predict(a) for a in space.enumerate()), abs=1e-9)


@pytest.mark.parametrize("solver", ["exact", "milp", "evolution", "best-of"])
def test_estimators_with_terms_across_stages(solver):
    space = tiny_space([((1, 2), 3), ((1, 2), 2), ((2,), 2)])
    estimator = random_quadratic(space, 2, pairs=30)
    _, (table,) = random_instance(space, 2)
    latencies = sorted(table.predict(a) for a in space.enumerate())
    limits = [Limit(table, latencies[len(latencies) // 2])]
    problem = Problem.build(space, estimator, limits)
    (solution,) = solve(solver, problem)
    assert problem.allows(solution.architecture)
    assert solution.score == pytest.approx(estimator.predict(solution.architecture), abs=1e-12)
    if solver != "evolution":
        assert solution.score == pytest.approx(brute_force(space, estimator, limits)[0][0], abs=1e-9)


def test_the_frontier_of_a_coupled_problem_names_the_solvers_to_use():
    space = tiny_space([((1, 2), 3), ((1, 2), 2)])
    estimator = random_quadratic(space, 0, pairs=20)
    _, (table,) = random_instance(space, 0)
    with pytest.raises(InputError, match="terms across stages") as caught:
        dn.frontier(space, estimator, table)
    assert "milp" in caught.value.hint and "evolution" in caught.value.hint
    with pytest.raises(InputError, match="terms across stages"):
        dn.search(space, estimator, [Limit(table, 5.0)], solver="bcfw")


def test_the_integer_form_refuses_two_sums_behind_a_link():
    space = tiny_space([((1, 2), 3), ((1, 2), 2)])
    problem = Problem.build(space, random_indexed(space, 0, indices=2), [Limit("params", 1e9)])
    with pytest.raises(InputError, match="several sums behind a link") as caught:
        solve("milp", problem)
    assert "exact" in caught.value.hint and "evolution" in caught.value.hint and "milp" not in caught.value.hint


@pytest.mark.parametrize("indices", [1, 2])
def test_many_networks_score_as_each_is_predicted(indices):
    from deploynas.search.networks import Evaluator, Networks

    space = tiny_space([((1, 2), 3), ((1, 3), 2)])
    estimator = random_indexed(space, 0, indices)
    networks = list(space.enumerate())
    many = Networks.from_rows(space.decisions, space.rows(networks))
    scores = Evaluator(Problem.build(space, estimator, [])).scores(many)
    assert scores.tolist() == [estimator.predict(network) for network in networks]


class Oracle:
    """An estimator without coefficients, as a neural network is one."""

    def __init__(self, space: dn.Space) -> None:
        self.space = space

    def predict(self, architecture: dn.Architecture) -> float:
        return 0.5 + 0.01 * sum(c * c for _, _, c in architecture.blocks())


def test_an_estimator_that_can_only_be_asked_goes_to_evolution():
    space = tiny_space([((1, 2), 3), ((1, 2), 3)])
    _, (table,) = random_instance(space, 0)
    problem = Problem.build(space, dn.ask(Oracle(space)), [Limit(table, 100.0)])
    (solution,) = solve("evolution", problem)
    assert solution.score == pytest.approx(0.5 + 0.01 * 4 * 4)  # four blocks, configuration 2 each
    with pytest.raises(InputError, match="coefficients") as caught:
        solve("exact", problem)
    assert "evolution" in caught.value.hint


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limits", [1, 2])
def test_bcfw_iterates_are_as_sparse_as_theorem_3_3_says(imagenet, seed, limits):
    """At most one row of each block of coordinates is not one-hot, with two non-zeros; a row more for every
    limit.
    """
    from deploynas.search.networks import Evaluator

    estimator, tables = random_instance(imagenet, seed, tables=limits)
    problem = Problem.build(imagenet, estimator, [Limit(table, 8.0 + seed) for table in tables])
    evaluator = Evaluator(problem)
    for iterations in (1, 2, 3, 7, 20) if limits == 1 else (1, 5):
        starts = 16 if limits == 1 else 2
        alpha, beta = Bcfw(seed, iterations=iterations, starts=starts).relaxed(evaluator)
        for weights in (alpha.reshape(len(alpha), -1, alpha.shape[-1]), beta):
            assert weights.min() >= 0
            np.testing.assert_allclose(weights.sum(axis=-1), 1)
            nonzeros = np.count_nonzero(weights, axis=-1)
            assert ((nonzeros > 1).sum(axis=1) <= limits).all()
            assert nonzeros.max() <= 1 + limits
            assert (nonzeros - 1).sum(axis=1).max() <= limits


def test_bcfw_steps_keep_the_relaxed_limit(imagenet):
    from deploynas.search.networks import Evaluator

    estimator, (table,) = random_instance(imagenet, 1)
    evaluator = Evaluator(Problem.build(imagenet, estimator, [Limit(table, 9.0)]))
    alpha, beta = Bcfw(1).relaxed(evaluator)
    share = np.einsum("nsi,sib->nsb", beta, evaluator.takes_part.astype(float))
    cost = table.fixed_ms + np.einsum("nsb,nsbc,sbc->n", share, alpha, evaluator.block_cost[0])
    assert cost.max() <= 9.0 + 1e-9


def test_an_unknown_solver_is_answered_with_the_known_ones():
    with pytest.raises(InputError, match="no solver") as caught:
        load_solver("simplex")
    assert "exact" in caught.value.hint


@pytest.mark.parametrize("solver", ["exact", "milp", "bcfw", "evolution"])
def test_sums_of_decimals_that_miss_a_budget_by_the_last_bit(imagenet, solver):
    """Twenty blocks of 0.1 ms add up to 2.0000000000000004, which is over 2 ms: nineteen it is."""
    blocks = [[[0.1] * len(s.configs)] * s.max_depth for s in imagenet.stages]
    worths = [[[0.01] * len(s.configs)] * s.max_depth for s in imagenet.stages]
    depths = [[0.0] * len(s.depths) for s in imagenet.stages]
    estimator = dn.BilinearEstimator.from_arrays(imagenet, 0.5, depths, worths)
    tables = [dn.LatencyTable.from_arrays(imagenet, 0.0, blocks) for _ in range(2)]
    assert tables[0].predict(imagenet.heaviest()) > 2.0
    for count in (1, 2):
        problem = Problem.build(imagenet, estimator, [Limit(table, 2.0) for table in tables[:count]])
        solution = load_solver(solver).solve(problem)[0]
        assert sum(solution.architecture.depths) <= 19
        if solver in ("exact", "milp"):
            assert sum(solution.architecture.depths) == 19
            if solver == "exact" and count == 1:
                assert solution.optimal
