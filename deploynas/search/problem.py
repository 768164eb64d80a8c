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
from typing import Literal

import numpy as np

from deploynas.costs import ADDITIVE, RESOURCES, resource_table
from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Cost, Estimator, Objective, Priced, Unit, arrays, padded, require_estimator

UNITS: dict[str, Unit] = {"params": "count", "macs": "count", "size_bytes": "bytes", "peak_memory_bytes": "bytes"}


@dataclass(frozen=True)
class Limit:
    """At most `budget` of a latency table's milliseconds, or of a resource (`params`, `macs`, ...)."""

    of: Priced | str
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
        return self.of if isinstance(self.of, str) else self.of.cost().name


@dataclass(frozen=True)
class Problem:
    """Maximise an accuracy under limits, over the architectures of a space."""

    space: Space
    objective: Objective
    costs: tuple[Cost, ...]
    size_index: int | None = None  # the input size of all its networks, where the space leaves that open; None: any

    @classmethod
    def build(cls, space: Space, estimator: Estimator, limits: Sequence[Limit]) -> Problem:
        require_estimator(estimator)
        space.require_hash(estimator.space.hash, "the estimator")
        costs = tuple(_limited(space, limit) for limit in limits)
        return cls(space, estimator.objective(), _with_distinct_names(costs))

    @property
    def additive(self) -> tuple[Cost, ...]:
        """The limits that couple decisions with each other."""
        return tuple(cost for cost in self.costs if cost.kind == "sum")

    @property
    def any_size(self) -> bool:
        """Whether networks of several input sizes may be the answer: then costs and scores have no coefficients yet."""
        return bool(self.space.sizes) and self.size_index is None

    def each_size(self) -> tuple[Problem, ...]:
        """The problem apart for every input size that is open; the best of their answers is the answer."""
        if not self.any_size:
            return (self,)
        return tuple(
            replace(self, objective=self.objective.at(i), costs=tuple(cost.at(i) for cost in self.costs), size_index=i)
            for i in range(len(self.space.sizes))
        )

    @cached_property
    def allowed(self) -> tuple[np.ndarray, ...]:
        """[stage] -> [block][configuration]: what there is, and what the limits on a maximum leave of it."""
        assert not self.any_size, "what a block costs depends on the input size: `each_size`"
        groups = self.space.decisions.groups
        allowed = [padded([np.ones(len(choice.options)) for choice in group.choices]) > 0 for group in groups]
        for cost in self.costs:
            if cost.kind == "max":
                for s, blocks in enumerate(cost.blocks):
                    allowed[s] &= blocks <= cost.budget
        if self.size_index is not None:
            allowed[-1] &= np.arange(len(self.space.sizes)) == self.size_index
        return tuple(allowed)

    def score(self, architecture: Architecture) -> float:
        """What is maximised."""
        return self.objective.score(architecture)

    def allows(self, architecture: Architecture) -> bool:
        """Whether the network keeps every limit."""
        own_size = self.size_index in (None, architecture.size_index)
        return own_size and all(cost.allows(architecture) for cost in self.costs)

    def draw(self, networks: int, rng: np.random.Generator) -> np.ndarray:
        """Rows of random networks, whatever they cost: every decision uniform, but for an input size that is given."""
        rows = self.space.decisions.draw(networks, rng)
        if self.size_index is not None:
            rows[:, -1] = self.size_index
        return rows

    def without(self, dropped: Sequence[str]) -> Problem:
        """The same problem with some limits left out."""
        return replace(self, costs=tuple(cost for cost in self.costs if cost.name not in dropped))


def table_cost(space: Space, table: Priced, budget: float = math.inf) -> Cost:
    """The latencies of a table as a limit; without a budget it limits nothing."""
    if not isinstance(table, Priced):
        raise InputError(f"expected a latency table, got {type(table).__name__}")
    cost = table.cost(budget)
    space.require_hash(table.space.hash, f"the table `{cost.name}`")
    return cost


def resource_cost(space: Space, resource: str, budget: float = math.inf) -> Cost:
    """A resource as a limit: computed, so without an error."""
    kind: Literal["sum", "max"] = "sum" if resource in ADDITIVE else "max"
    tables = [resource_table(one, resource) for one in space.each_size()]
    return Cost.joined([Cost(resource, kind, UNITS[resource], fixed, arrays(own), budget) for fixed, own in tables])


def _limited(space: Space, limit: Limit) -> Cost:
    if not isinstance(limit, Limit):
        raise InputError(f"limits must be `Limit` objects, got {type(limit).__name__}")
    if isinstance(limit.of, str):
        return resource_cost(space, limit.of, float(limit.budget))
    return table_cost(space, limit.of, float(limit.budget))


def _with_distinct_names(costs: tuple[Cost, ...]) -> tuple[Cost, ...]:
    """Two tables of one device, or of unnamed ones, are told apart by their number."""
    names = [cost.name for cost in costs]
    return tuple(
        replace(cost, name=f"{cost.name} ({names[:i].count(cost.name) + 1})") if names.count(cost.name) > 1 else cost
        for i, cost in enumerate(costs)
    )
