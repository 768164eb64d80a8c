"""The k best networks under one limit, exact.

The frontier's merging, with two changes: a prefix is dropped only if k others dominate it, and only prefixes
that can still beat the k-th best network known so far are carried on. What they can reach at most comes from
the frontier of all that may follow, computed backwards; that bound is summed in another order than the
network's own costs, so it gets a slack far above rounding errors. The answer itself never depends on the
slack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from deploynas.search.frontier import Layer, end_stage, extend, problem_frontier, separable
from deploynas.search.objective import Walk
from deploynas.search.problem import Cost, Problem
from deploynas.space import Architecture

SLACK = 1e-9  # relative; a sum of a hundred terms is off by about 1e-14


@dataclass(frozen=True)
class _Bound:
    """Which prefixes may still become one of the k best networks."""

    room: float  # what the blocks may cost together
    worth: float  # of the k-th best network known

    def admits(self, ending: Layer, cost: np.ndarray, value: np.ndarray) -> np.ndarray:
        if not len(ending.cost):
            return np.zeros(len(cost), dtype=bool)
        position = np.searchsorted(ending.cost, self.room - cost, side="right") - 1
        return (position >= 0) & (value + ending.value[position] >= self.worth)


def k_best(problem: Problem, count: int) -> list[tuple[float, Architecture]]:
    """(accuracy, architecture) of the `count` best networks, best first; fewer if there are fewer."""
    objective = separable(problem, "ranking networks")
    (cost,) = problem.additive
    known = problem_frontier(problem)
    if not len(known):
        return []
    bound = _bound(cost, known.accuracies, count)
    endings = _endings(problem, cost)
    layer = Layer(np.zeros(1), np.full(1, objective.base))
    for s, walks in enumerate(objective.stages):
        reached = [
            step
            for walk, after in zip(walks, endings[s], strict=True)
            for step in _walk(layer, walk, after, bound, cost, s, problem.allowed[s], count)
        ]
        layer = end_stage(reached, count)
    total = cost.fixed + layer.cost
    order = np.lexsort((total, -layer.value))
    best = order[total[order] <= cost.budget][:count]
    return [(float(layer.value[i]), problem.space.architecture(layer.choices(i))) for i in best]


def _bound(cost: Cost, accuracies: np.ndarray, count: int) -> _Bound:
    room = cost.budget - cost.fixed
    if len(accuracies) < count:
        return _Bound(room + SLACK * abs(cost.budget), -np.inf)
    worth = float(accuracies[-count])  # the frontier's accuracies rise
    return _Bound(room + SLACK * abs(cost.budget), worth - SLACK * (1 + float(np.abs(accuracies).max())))


def _walk(
    layer: Layer,
    walk: Walk,
    after: list[Layer],
    bound: _Bound,
    cost: Cost,
    s: int,
    allowed: np.ndarray,
    count: int,
) -> Iterator[tuple[Layer, float]]:
    bonus = {leave.depth: leave.bonus for leave in walk.exits}
    for b in range(walk.exits[-1].depth):
        configs = np.flatnonzero(allowed[b])
        admit = partial(bound.admits, after[b])
        layer = extend(layer, cost.blocks[s][b], walk.value[b], configs, admit, count)
        if b + 1 in bonus:
            yield layer, bonus[b + 1]


def _endings(problem: Problem, cost: Cost) -> list[list[list[Layer]]]:
    """[stage][walk][block]: the frontier of everything that may follow that block."""
    objective = separable(problem, "ranking networks")
    endings: list[list[list[Layer]]] = []
    following = Layer(np.zeros(1), np.zeros(1))
    for s in reversed(range(len(objective.stages))):
        stage, starts = [], []
        for walk in objective.stages[s]:
            bonus = {leave.depth: leave.bonus for leave in walk.exits}
            after: list[Layer] = []
            ending = following
            for b in reversed(range(walk.exits[-1].depth)):
                options = [(following, bonus[b + 1])] if b + 1 in bonus else []
                if after:
                    options.append((ending, 0.0))
                after.insert(0, end_stage(options))
                ending = extend(after[0], cost.blocks[s][b], walk.value[b], np.flatnonzero(problem.allowed[s][b]))
            stage.append(after)
            starts.append((ending, 0.0))
        endings.insert(0, stage)
        following = end_stage(starts)
    return endings
