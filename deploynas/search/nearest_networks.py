"""The networks next to given points of the decisions' space, within a joint budget: exact.

A point has a number for every option; the option next to it in a column is the one with the largest (5.9), and another
one is further away by the difference. Those differences add up over decisions, so every point has a frontier of
networks by latency and distance, and the frontiers merge as blocks do. Without a budget every column gets its largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.search.frontier import Frontier, problem_frontier
from deploynas.search.joint_budget import JointBudget
from deploynas.search.merging import Layer, end_stage, extend
from deploynas.search.problem import Problem
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import SeparableObjective


def nearest_networks(space: Space, points: np.ndarray, budget: JointBudget) -> tuple[Architecture, ...] | None:
    """One network for each point, together within the budget; None if no networks are."""
    fronts = [problem_frontier(Problem(space, _nearness(space, point), (budget.cost,))) for point in points]
    if not all(len(front) for front in fronts):
        return None
    if budget.running == "parallel":
        return tuple(front[len(front) - 1].architecture for front in fronts)

    def within(costs: np.ndarray, values: np.ndarray) -> np.ndarray:
        return costs <= budget.budget_ms

    layer = Layer(np.zeros(1), np.zeros(1))
    for front in fronts:
        layer = extend(layer, front.latencies_ms, front.scores, np.arange(len(front)), within)
    if not len(layer.cost):
        return None
    (picked,) = end_stage([(layer, 0.0)]).choices(len(layer.cost) - 1)
    return tuple(front[i].architecture for front, i in zip(fronts, picked, strict=True))


def most_likely(space: Space, evidence: np.ndarray, budget: JointBudget) -> Frontier:
    """The network with the largest sum of `evidence`, a vector of decisions, for every latency up to the budget."""
    return problem_frontier(Problem(space, _sum_of(space, evidence), (budget.cost,)))


def _nearness(space: Space, point: np.ndarray) -> SeparableObjective:
    decisions, behind = space.decisions, point.copy()
    for where in decisions.slices:
        behind[where] -= point[where].max()
    return _sum_of(space, behind)


def _sum_of(space: Space, vector: np.ndarray) -> SeparableObjective:
    """Of what every decision that counts adds."""
    decisions = space.decisions
    depth, option = decisions.ragged(vector)
    worth = decisions.require_depths(depth, "depth"), decisions.require_options(option, "option")
    return SeparableObjective.from_contributions(space, 0.0, *worth, scale="ordinal")


def distinct(networks: Sequence[Architecture]) -> bool:
    return len(set(networks)) == len(networks)
