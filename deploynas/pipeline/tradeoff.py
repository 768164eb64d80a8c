"""What accuracy can be had for what latency on one device: optimal networks, fastest first, and what to expect of each.

The whole frontier where that is exact (see `search.frontier`). Under further limits that add up, or for an estimator
with terms across stages, the optimum of a few budgets stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas import search
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.errors import GateError
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.search_request import SearchRequest
from deploynas.search.feasibility import cheapest_network, dearest_network, require_feasible
from deploynas.search.frontier import FrontierPoint, frontier
from deploynas.search.problem import Limit, Problem, table_cost
from deploynas.space.coefficients import IndexedObjective, SeparableObjective

BUDGETS = 16  # that are solved for where there is no frontier


@dataclass(frozen=True)
class Tradeoff:
    estimator: StoredEstimator
    table: LatencyTable
    points: Sequence[FrontierPoint]  # at least one
    latencies_ms: np.ndarray  # of the points, rising
    accuracies: np.ndarray  # to expect, never falling, since a higher score is never worth less
    complete: bool  # every optimal network, not only those of some budgets

    @classmethod
    def build(cls, request: SearchRequest) -> Tradeoff:
        """Of the only table, under the further limits; `GateError` if these leave nothing."""
        (given,) = request.tables
        problem = Problem.build(request.space, request.estimator, request.resources)
        if problem.costs:
            require_feasible(problem)
        complete = has_frontier(problem)
        points: Sequence[FrontierPoint]
        if complete:
            points = found = frontier(request.space, request.estimator, given.table, request.resources)
            latencies_ms, scores = found.latencies_ms, found.scores
        else:
            points = _solved(request, problem)
            latencies_ms, scores = np.array([p.latency_ms for p in points]), np.array([p.score for p in points])
        accuracies = np.array([request.estimator.expected(float(score)) for score in scores])
        return cls(request.estimator, given.table, points, latencies_ms, accuracies, complete)

    def best(self, latency_ms: float) -> int | None:
        """The number of the most accurate network within a latency; None if there is none."""
        count = int(np.searchsorted(self.latencies_ms, latency_ms, side="right"))
        return count - 1 if count else None

    def fastest(self, accuracy: float) -> int | None:
        """The number of the fastest network that is expected to reach an accuracy; None if none is."""
        first = int(np.searchsorted(self.accuracies, accuracy, side="left"))
        return first if first < len(self.points) else None


def has_frontier(problem: Problem) -> bool:
    """Whether every optimal network of a table can be had, under the limits of the problem."""
    return not problem.additive and isinstance(problem.objective, (SeparableObjective, IndexedObjective))


def _solved(request: SearchRequest, problem: Problem) -> list[FrontierPoint]:
    """The optimum of some budgets between the fastest and the slowest network; each better than those before it."""
    (given,) = request.tables
    cost, scale = table_cost(request.space, given.table), problem.objective.scale
    ends = [cost.total(network(problem, cost)) for network in (cheapest_network, dearest_network)]
    points = list[FrontierPoint]()
    for budget_ms in np.geomspace(max(ends[0], 1e-9), max(ends[1], 1e-9), BUDGETS) * (1 + 1e-12):
        limits = [Limit(given.table, float(budget_ms)), *request.resources]
        try:
            found = search(request.space, request.estimator, limits, request.solver.name, seed=request.solver.seed)
        except GateError:
            continue  # the other limits need a slower network
        assert found.latency_ms is not None
        if not points or (found.score > points[-1].score and found.latency_ms > points[-1].latency_ms):
            points.append(FrontierPoint(found.architecture, found.score, found.latency_ms, scale))
    return points
