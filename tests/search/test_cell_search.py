"""Searching cells: one group of decisions of a fixed depth, whose choices may have unequal numbers of options."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_problems import brute_force, like_blocks, like_depths, random_table
from tiny_spaces import CELLS, RAGGED_CELLS

import deploynas as dn
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.indexed import Index, IndexedEstimator
from deploynas.accuracy.learned import fit_bilinear, fit_quadratic
from deploynas.accuracy.mlp import fit_mlp
from deploynas.costs import Costs
from deploynas.errors import GateError
from deploynas.latency.table import LatencyTable
from deploynas.search.problem import Limit
from deploynas.search.solver import SOLVERS
from deploynas.space import Space
from deploynas.space.link import Link


@pytest.fixture(scope="module", params=[CELLS, RAGGED_CELLS], ids=["cells", "ragged"])
def space(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Space:
    path = tmp_path_factory.mktemp("cells") / "cells.yaml"
    path.write_text(request.param)
    return Space.load(path)


def drawn(space: Space, seed: int) -> tuple[BilinearEstimator, LatencyTable]:
    rng = np.random.default_rng(seed)
    worth = like_blocks(space, lambda: float(rng.normal(0, 0.02)))
    estimator = BilinearEstimator.from_arrays(space, 0.5, like_depths(space, lambda: 0.0), worth)
    return estimator, random_table(space, lambda: 1.0, lambda: float(rng.uniform(0, 0.5)))


def middle_ms(space: Space, table: LatencyTable) -> float:
    return float(np.median([table.predict(architecture) for architecture in space.enumerate()]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_the_best_cell(solver: str, seed: int, space: Space) -> None:
    """The spaces are so small that those which only try find it too."""
    estimator, table = drawn(space, seed)
    limits = [Limit(table, middle_ms(space, table))]
    found = dn.search(space, estimator, limits, solver=solver)
    assert found.accuracy == pytest.approx(brute_force(space, estimator, limits)[0][0], abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_frontier_is_every_undominated_cell(seed: int, space: Space) -> None:
    estimator, table = drawn(space, seed)
    points = sorted((table.predict(a), -estimator.predict(a)) for a in space.enumerate())
    wanted, best = [], -np.inf
    for latency, negative in points:
        if -negative > best:
            wanted.append((latency, -negative))
            best = -negative
    assert [(p.latency_ms, p.accuracy) for p in dn.frontier(space, estimator, table)] == wanted


def test_the_best_twenty_come_in_their_order(space: Space) -> None:
    estimator, table = drawn(space, 7)
    limits = [Limit(table, middle_ms(space, table))]
    wanted = [accuracy for accuracy, _ in brute_force(space, estimator, limits)][:12]
    found = dn.search(space, estimator, limits, top=12)
    assert [one.accuracy for one in found] == pytest.approx(wanted)


def test_sums_behind_a_link_are_searched_exactly(space: Space) -> None:
    rng = np.random.default_rng(3)
    indices = tuple(
        Index.from_arrays(space, 0.0, like_depths(space, lambda: 0.0), like_blocks(space, lambda: float(rng.normal())))
        for _ in range(2)
    )
    link = Link(0.5, np.array([0.01, 0.02]), np.array([0.1]), np.array([[0.3, 0.6]]), np.array([0.1]))
    estimator, (_, table) = IndexedEstimator(space, indices, link), drawn(space, 3)
    limits = [Limit(table, middle_ms(space, table))]
    assert dn.search(space, estimator, limits).accuracy == brute_force(space, estimator, limits)[0][0]
    pair = [*limits, Limit("params", float(np.median([Costs.of(space, a).params for a in space.enumerate()])))]
    found = dn.search(space, estimator, pair)
    assert found.costs.params <= pair[1].budget and table.predict(found.architecture) <= pair[0].budget


@pytest.mark.parametrize("resource", ["params", "macs", "size_bytes", "peak_memory_bytes"])
def test_no_limit_on_a_resource_is_broken(resource: str, space: Space) -> None:
    estimator, table = drawn(space, 4)
    budgets = np.unique([getattr(Costs.of(space, a), resource) for a in space.enumerate()])
    for budget in budgets[:: max(1, len(budgets) // 6)]:
        try:
            found = dn.search(space, estimator, [Limit(table, 1e6), Limit(resource, float(budget))])
        except GateError:
            continue  # what no cell is certain to keep
        assert getattr(Costs.of(space, found.architecture), resource) <= budget


@pytest.mark.parametrize("fit", [fit_bilinear, fit_quadratic, fit_mlp], ids=["bilinear", "quadratic", "mlp"])
def test_forms_learned_from_cells_predict_them(fit, space: Space) -> None:
    """Sums of single edges are within every form."""
    estimator, _ = drawn(space, 5)
    cells = list(space.enumerate())
    accuracies = [estimator.predict(cell) for cell in cells]
    learned = fit(space, cells, accuracies)
    errors = [abs(learned.predict(cell) - accuracy) for cell, accuracy in zip(cells, accuracies, strict=True)]
    assert np.mean(errors) < 0.25 * np.std(accuracies)
