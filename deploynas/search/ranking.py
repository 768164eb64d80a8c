"""The k best networks under one limit, exact.

The frontier's merging, with two changes: a prefix is dropped only if k others dominate it, and only prefixes
that can still beat the k-th best network known so far are carried on. What they can reach at most comes from
the frontier of all that may follow, computed backwards; that bound is summed in another order than the
network's own costs, so it gets a slack far above rounding errors. The answer itself never depends on the
slack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from deploynas.search.frontier import problem_frontier
from deploynas.search.indexed_frontier import indexed_k_best
from deploynas.search.merging import Layer, end_stage, extend
from deploynas.search.prefixes import IndexedProblem
from deploynas.search.problem import Problem
from deploynas.search.solver import separable
from deploynas.space import Architecture
from deploynas.space.coefficients import Cost, IndexedObjective, OneIndexObjective, SeparableObjective, Walk

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
    """(score, architecture) of the `count` best networks, best first; fewer if there are fewer."""
    objective = problem.objective
    if isinstance(objective, OneIndexObjective):  # those with the largest indices: a link never falls
        best = _k_best(replace(problem, objective=objective.index), count)
        scores = objective.linked(np.array([index for index, _ in best]))
        return [(float(score), architecture) for score, (_, architecture) in zip(scores, best, strict=True)]
    if isinstance(objective, IndexedObjective):
        (cost,) = problem.additive
        found = indexed_k_best(IndexedProblem.of(objective, cost, problem.allowed), count)
        return [(float(found.accuracy[i]), problem.space.architecture(found.choices(i))) for i in range(len(found))]
    return _k_best(problem, count)


def _k_best(problem: Problem, count: int) -> list[tuple[float, Architecture]]:
    objective = separable(problem, "ranking networks")
    (cost,) = problem.additive
    known = problem_frontier(problem)
    if not len(known):
        return []
    ranking = _Ranking(cost, problem.allowed, _bound(cost, known.scores, count), count)
    endings = _endings(problem, objective, cost)
    layer = Layer(np.zeros(1), np.full(1, objective.base))
    for s, walks in enumerate(objective.stages):
        reached = [
            step for walk, after in zip(walks, endings[s], strict=True) for step in ranking.walk(layer, s, walk, after)
        ]
        layer = end_stage(reached, count)
    total = cost.fixed + layer.cost
    order = np.lexsort((total, -layer.value))
    best = order[total[order] <= cost.budget][:count]
    return [(float(layer.value[i]), problem.space.architecture(layer.choices(i))) for i in best]


@dataclass(frozen=True)
class _Ranking:
    """What stays the same while prefixes grow into the `count` best networks."""

    cost: Cost
    allowed: tuple[np.ndarray, ...]
    bound: _Bound
    count: int

    def walk(self, layer: Layer, s: int, walk: Walk, after: list[Layer]) -> Iterator[tuple[Layer, float]]:
        """The lists after each depth of a walk through stage s, with the bonus of stopping there."""
        bonus = {leave.depth: leave.bonus for leave in walk.exits}
        for b in range(walk.exits[-1].depth):
            configs = np.flatnonzero(self.allowed[s][b])
            admit = partial(self.bound.admits, after[b])
            layer = extend(layer, self.cost.blocks[s][b], walk.value[b], configs, admit, self.count)
            if b + 1 in bonus:
                yield layer, bonus[b + 1]


def _bound(cost: Cost, scores: np.ndarray, count: int) -> _Bound:
    room = cost.budget - cost.fixed
    if len(scores) < count:
        return _Bound(room + SLACK * abs(cost.budget), -np.inf)
    worth = float(scores[-count])  # the frontier's scores rise
    return _Bound(room + SLACK * abs(cost.budget), worth - SLACK * (1 + float(np.abs(scores).max())))


def _endings(problem: Problem, objective: SeparableObjective, cost: Cost) -> list[list[list[Layer]]]:
    """[stage][walk][block]: the frontier of everything that may follow that block."""
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
