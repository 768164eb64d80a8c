"""Every optimal network for one latency table, exact: merging of non-dominated lists.

Prefixes of a network are compared by (cost, score): one that costs no less and is worth no more than
another can never lead to a better network, whatever follows. So the list of non-dominated prefixes is carried
from block to block, a stage's depths are merged at its end, and what is left after the last stage is the
answer for every budget. The work is (length of the list) x (configurations) a block: it grows gently with the
space.

A link that never falls keeps the order of its index, so with one index it is asked at the very end; several indices
have their own merging (`indexed_frontier`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from deploynas.errors import GateError, InputError
from deploynas.search.indexed_frontier import indexed_frontier
from deploynas.search.merging import Layer, end_stage, extend, undominated
from deploynas.search.prefixes import IndexedProblem
from deploynas.search.problem import Limit, Problem, table_cost
from deploynas.search.solver import cannot_maximise
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import (
    Cost,
    Estimator,
    IndexedObjective,
    OneIndexObjective,
    Priced,
    Scale,
    SeparableObjective,
    Walk,
)
from deploynas.space.decisions import Choices


@dataclass(frozen=True)
class FrontierPoint:
    """A network that no other beats in both score and latency."""

    architecture: Architecture
    score: float
    latency_ms: float
    scale: Scale = "accuracy"

    @property
    def accuracy(self) -> float | None:
        """The score, if it is an accuracy (0..1); None if it only ranks."""
        return self.score if self.scale == "accuracy" else None


@dataclass(frozen=True)
class _Networks:
    """Whole networks of a list, cheapest first; choices are read on demand."""

    cost: np.ndarray
    value: np.ndarray
    choices: Callable[[int], Choices]


class Frontier(Sequence[FrontierPoint]):
    """All of them, fastest first. Architectures are put together only when they are looked at."""

    def __init__(self, space: Space, networks: _Networks, scale: Scale, positions: np.ndarray | None = None) -> None:
        self._space, self._networks, self.scale = space, networks, scale
        self._positions = np.arange(len(networks.cost)) if positions is None else positions

    @cached_property
    def latencies_ms(self) -> np.ndarray:
        return self._networks.cost[self._positions]

    @cached_property
    def scores(self) -> np.ndarray:
        """What was maximised, rising."""
        return self._networks.value[self._positions]

    @property
    def accuracies(self) -> np.ndarray:
        """The scores, if they are accuracies (0..1)."""
        if self.scale != "accuracy":
            raise InputError("these scores only rank networks, they are no accuracies", hint="see `.scores`")
        return self.scores

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, i: int) -> FrontierPoint: ...
    @overload
    def __getitem__(self, i: slice) -> Frontier: ...
    def __getitem__(self, i: int | slice) -> FrontierPoint | Frontier:
        if isinstance(i, slice):
            return self._at(self._positions[i])
        position = int(self._positions[i])
        architecture = self._space.architecture(self._networks.choices(position))
        score, latency_ms = float(self._networks.value[position]), float(self._networks.cost[position])
        return FrontierPoint(architecture, score, latency_ms, self.scale)

    def __iter__(self) -> Iterator[FrontierPoint]:
        return (self[i] for i in range(len(self)))

    def best(self, budget_ms: float) -> FrontierPoint | None:
        """The optimum for one budget; None if even the fastest network is over it."""
        count = int(np.searchsorted(self.latencies_ms, budget_ms, side="right"))
        return self[count - 1] if count else None

    def reaching(self, accuracy: float) -> FrontierPoint | None:
        """The fastest network that reaches an accuracy (or a score, if scores only rank); None if none does."""
        first = int(np.searchsorted(self.scores, accuracy, side="left"))
        return self[first] if first < len(self) else None

    def knee(self, within: float = 0.01) -> FrontierPoint:
        """The fastest network that is at most `within` less accurate than the best: the budget when none is given."""
        if not 0 <= within < math.inf:
            raise InputError(f"`within` is a fraction of accuracy, 0 or more, got {within}")
        if not len(self):
            raise GateError("no network is within the limits, so none is nearly the best")
        found = self.reaching(float(self.accuracies[-1]) - within)
        assert found is not None, "the best network reaches its own accuracy"
        return found

    def thin(self, count: int) -> Frontier:
        """The optimum for each of `count` evenly spaced budgets, from the fastest network to the best."""
        if count < 2:
            raise InputError(f"a frontier can be thinned to 2 points or more, got {count}")
        if len(self) <= count:
            return self
        budgets = np.linspace(self.latencies_ms[0], self.latencies_ms[-1], count)
        budgets[-1] = self.latencies_ms[-1]
        kept = np.unique(np.searchsorted(self.latencies_ms, budgets, side="right") - 1)
        return self._at(self._positions[kept])

    def _at(self, positions: np.ndarray) -> Frontier:
        return Frontier(self._space, self._networks, self.scale, positions)


def frontier(space: Space, estimator: Estimator, table: Priced, limits: Sequence[Limit] = ()) -> Frontier:
    """Every optimal network for the table. `limits` may forbid configurations (`peak_memory_bytes`)."""
    problem = Problem.build(space, estimator, limits)
    if problem.additive:
        raise InputError(
            f"a frontier has one cost, its table's latency; {problem.additive[0].name} would be a second",
            hint="use `search` with all limits for the optimum of one budget",
        )
    return problem_frontier(replace(problem, costs=(*problem.costs, table_cost(space, table))))


def problem_frontier(problem: Problem) -> Frontier:
    """The frontier of a problem with one additive limit, up to its budget; empty if nothing fits.

    Where the input size is open, what no network of any size beats.
    """
    if not isinstance(problem.objective, (SeparableObjective, IndexedObjective)):
        raise cannot_maximise("the frontier", problem.objective)
    networks = _joined([_undominated_networks(apart) for apart in problem.each_size()])
    # adding the fixed part last, as `LatencyTable.predict` does, may make two costs equal, and a link two scores
    kept = undominated(networks.cost, networks.value)
    return Frontier(problem.space, networks, problem.objective.scale, kept)


def _joined(lists: Sequence[_Networks]) -> _Networks:
    """One list of several."""
    if len(lists) == 1:
        return lists[0]
    starts = np.cumsum([0, *(len(own.cost) for own in lists)])

    def choices(i: int) -> Choices:
        which = int(np.searchsorted(starts, i, side="right")) - 1
        return lists[which].choices(i - int(starts[which]))

    cost, value = (np.concatenate(all_of) for all_of in zip(*((own.cost, own.value) for own in lists), strict=True))
    return _Networks(cost, value, choices)


def _undominated_networks(problem: Problem) -> _Networks:
    objective, (cost,) = problem.objective, problem.additive
    if any(other.fixed > other.budget for other in problem.costs):
        nothing = Layer(np.empty(0), np.empty(0))
        return _Networks(nothing.cost, nothing.value, nothing.choices)
    if isinstance(objective, SeparableObjective):
        layer = _merged(problem, objective, cost)
        return _Networks(cost.fixed + layer.cost, layer.value, layer.choices)
    if isinstance(objective, OneIndexObjective):
        layer = _merged(problem, objective.index, cost)
        return _Networks(cost.fixed + layer.cost, objective.linked(layer.value), layer.choices)
    assert isinstance(objective, IndexedObjective)
    found = indexed_frontier(IndexedProblem.of(objective, cost, problem.allowed))
    return _Networks(found.cost, found.accuracy, found.choices)


def _merged(problem: Problem, objective: SeparableObjective, cost: Cost) -> Layer:
    """The non-dominated networks, their costs without the fixed part."""
    layer = Layer(np.zeros(1), np.full(1, objective.base))
    for s, walks in enumerate(objective.stages):
        layer = end_stage([
            (reached, bonus)
            for walk in walks
            for reached, bonus in _walk(layer, walk, cost, s, problem.allowed[s])
        ])  # fmt: skip
    return layer


def _walk(layer: Layer, walk: Walk, cost: Cost, s: int, allowed: np.ndarray) -> Iterator[tuple[Layer, float]]:
    """The lists after each depth of a walk, with the bonus of stopping there."""
    bonus = {leave.depth: leave.bonus for leave in walk.exits}

    def within(costs: np.ndarray, values: np.ndarray) -> np.ndarray:
        return cost.fixed + costs <= cost.budget  # costs only grow from here

    admit = within if math.isfinite(cost.budget) else None
    for b in range(walk.exits[-1].depth):
        layer = extend(layer, cost.blocks[s][b], walk.value[b], np.flatnonzero(allowed[b]), admit)
        if b + 1 in bonus:
            yield layer, bonus[b + 1]
