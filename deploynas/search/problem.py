"""The problem that every solver gets: coefficients of an accuracy to maximise, and limits to keep (eq. 1).

A limit is a cost for every block plus a fixed part, added up (latency on a device, parameters, MACs, bytes of
weights) or maximised over (peak memory), and a budget. A maximum within a budget simply forbids
configurations.

When is a network within its budget? When its cost, added up block after block in network order with the fixed
part last, is at most the budget: the very number that `LatencyTable.predict` returns. No tolerance is
involved, and none is needed: rounding is monotone (a <= b implies fl(a + x) <= fl(b + x)), so comparing
prefixes is exact in floating point as long as every sum is made in that order. All code here makes its sums
in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from deploynas.costs import ADDITIVE, RESOURCES, resource_table
from deploynas.errors import InputError
from deploynas.search.objective import Objective, Predictor, objective_of
from deploynas.space import Architecture, Ragged, Space


class Table(Protocol):
    """A latency table, as far as a search looks at it."""

    @property
    def space(self) -> Space: ...
    @property
    def fixed_ms(self) -> float: ...
    @property
    def block_ms(self) -> Ragged: ...
    @property
    def device_name(self) -> str: ...
    @property
    def mean_error(self) -> float | None: ...


@dataclass(frozen=True)
class Limit:
    """At most `budget` of a latency table's milliseconds, or of a resource (`params`, `macs`, ...)."""

    of: Table | str
    budget: float

    def __post_init__(self) -> None:
        if isinstance(self.of, str) and self.of not in RESOURCES:
            raise InputError(f"no resource `{self.of}`", hint=f"one of {', '.join(RESOURCES)}, or a latency table")
        if isinstance(self.budget, bool) or not isinstance(self.budget, (int, float, np.number)):
            raise InputError(f"the budget of {self.name} must be a number, got {self.budget!r}")
        if not 0 < self.budget < math.inf:
            raise InputError(
                f"the budget of {self.name} must be positive and finite, got {self.budget}",
                hint="leave a limit out to have none",
            )

    @property
    def name(self) -> str:
        return self.of if isinstance(self.of, str) else f"latency_ms on {self.of.device_name}"


@dataclass(frozen=True)
class Cost:
    """One limit by its coefficients: what a network costs, and how much it may."""

    name: str
    kind: Literal["sum", "max"]
    fixed: float
    blocks: tuple[np.ndarray, ...]  # [stage] -> [block][configuration], not negative
    budget: float
    relative_error: float | None  # validated, of a prediction; None: not known (or exact, for a resource)

    def of(self, architecture: Architecture) -> float:
        if self.kind == "max":
            return max([self.fixed, *(float(self.blocks[s][b, c]) for s, b, c in architecture.decisions())])
        total = 0.0
        for s, b, c in architecture.decisions():
            total += float(self.blocks[s][b, c])
        return self.fixed + total

    def allows(self, architecture: Architecture) -> bool:
        return self.of(architecture) <= self.budget


@dataclass(frozen=True)
class Problem:
    """Maximise an accuracy under limits, over the architectures of a space."""

    space: Space
    objective: Objective
    costs: tuple[Cost, ...]

    @classmethod
    def of(cls, space: Space, estimator: Predictor, limits: Sequence[Limit]) -> Problem:
        costs = tuple(_cost(space, limit) for limit in limits)
        return cls(space, objective_of(space, estimator), _with_distinct_names(costs))

    @property
    def additive(self) -> tuple[Cost, ...]:
        """The limits that couple decisions with each other."""
        return tuple(cost for cost in self.costs if cost.kind == "sum")

    @cached_property
    def allowed(self) -> tuple[np.ndarray, ...]:
        """[stage] -> [block][configuration]: what the limits on a maximum leave to choose from."""
        shapes = [(stage.max_depth, len(stage.configs)) for stage in self.space.stages]
        allowed = [np.ones(shape, dtype=bool) for shape in shapes]
        for cost in self.costs:
            if cost.kind == "max":
                for s, blocks in enumerate(cost.blocks):
                    allowed[s] &= blocks <= cost.budget
        return tuple(allowed)

    def accuracy(self, architecture: Architecture) -> float:
        return self.objective.accuracy(architecture)

    def allows(self, architecture: Architecture) -> bool:
        """Whether the network keeps every limit."""
        return all(cost.allows(architecture) for cost in self.costs)

    def without(self, dropped: Sequence[str]) -> Problem:
        """The same problem with some limits left out."""
        return replace(self, costs=tuple(cost for cost in self.costs if cost.name not in dropped))


def table_cost(space: Space, table: Table, budget: float = math.inf) -> Cost:
    """The latencies of a table as a limit; without a budget it limits nothing."""
    if not hasattr(table, "block_ms"):
        raise InputError(f"expected a latency table, got {type(table).__name__}")
    name = f"latency_ms on {table.device_name}"
    space.require_hash(table.space.hash, f"the table of {table.device_name}")
    blocks = space.require_blocks(table.block_ms, f"the table of {table.device_name}", minimum=0.0)
    if not 0 <= table.fixed_ms < math.inf:
        raise InputError(f"fixed_ms must be finite and not negative, got {table.fixed_ms}")
    return Cost(name, "sum", table.fixed_ms, _arrays(blocks), budget, table.mean_error)


def _cost(space: Space, limit: Limit) -> Cost:
    if not isinstance(limit, Limit):
        raise InputError(f"limits must be `Limit` objects, got {type(limit).__name__}")
    if not isinstance(limit.of, str):
        return table_cost(space, limit.of, float(limit.budget))
    fixed, blocks = resource_table(space, limit.of)
    kind: Literal["sum", "max"] = "sum" if limit.of in ADDITIVE else "max"
    return Cost(limit.of, kind, fixed, _arrays(blocks), float(limit.budget), None)


def _arrays(blocks: Sequence) -> tuple[np.ndarray, ...]:
    return tuple(np.array(stage, dtype=float) for stage in blocks)


def _with_distinct_names(costs: tuple[Cost, ...]) -> tuple[Cost, ...]:
    """Two tables of one device, or of unnamed ones, are told apart by their number."""
    names = [cost.name for cost in costs]
    return tuple(
        replace(cost, name=f"{cost.name} ({names[:i].count(cost.name) + 1})") if names.count(cost.name) > 1 else cost
        for i, cost in enumerate(costs)
    )
