"""Networks of several indices, built block by block: the problem on plain arrays, and the walk that solves it.

A prefix is the beginning of a network: its cost so far and its indices so far (`indexed_frontier` says what an index
is). A walk extends all prefixes by all configurations of the next block, merges the depths of a stage at its end, and
drops on the way what a rule of dominance or an admission drops. All sums are made in network order, the depth's bonus
after its blocks, so that they are the very numbers of a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deploynas.errors import InputError
from deploynas.search.trail import EMPTY, Trail
from deploynas.space.coefficients import Cost, IndexedObjective
from deploynas.space.decisions import Choices

Increasing = Callable[[np.ndarray], np.ndarray]  # (networks, indices) -> (networks,), increasing in every index


@dataclass(frozen=True)
class IndexedStage:
    """What every configuration of every block costs and adds to each index, and what each depth adds."""

    cost: tuple[np.ndarray, ...]  # [block] -> (configurations,), not negative
    values: tuple[np.ndarray, ...]  # [block] -> (indices, configurations)
    bonus: dict[int, np.ndarray]  # depth -> (indices,)
    allowed: tuple[np.ndarray, ...] | None = None  # [block] -> (configurations,) of bool; None: all are

    def configs(self, b: int) -> np.ndarray:
        """The configurations that block b may have."""
        return np.arange(len(self.cost[b])) if self.allowed is None else np.flatnonzero(self.allowed[b])

    @property
    def max_depth(self) -> int:
        return max(self.bonus)


@dataclass(frozen=True)
class IndexedProblem:
    """Maximise link(base + what the stages add) with fixed + cost at most the budget."""

    stages: tuple[IndexedStage, ...]
    base: np.ndarray  # (indices,)
    link: Increasing
    fixed: float = 0.0
    budget: float = math.inf

    def __post_init__(self) -> None:
        indices = len(self.base)
        for s, stage in enumerate(self.stages):
            if not stage.bonus or min(stage.bonus) < 1 or stage.max_depth > len(stage.cost):
                raise InputError(f"stage {s + 1}: depths {sorted(stage.bonus)} do not fit {len(stage.cost)} blocks")
            shapes = [(indices, len(cost)) for cost in stage.cost]
            if [values.shape for values in stage.values] != shapes or any(
                bonus.shape != (indices,) for bonus in stage.bonus.values()
            ):
                raise InputError(f"stage {s + 1}: every configuration and depth needs {indices} values")
            numbers = [*stage.cost, *stage.values, *stage.bonus.values()]
            if not all(np.isfinite(n).all() for n in numbers) or any((cost < 0).any() for cost in stage.cost):
                raise InputError(f"stage {s + 1}: costs and values must be finite, costs not negative")

    @classmethod
    def of(cls, objective: IndexedObjective, cost: Cost, allowed: Sequence[np.ndarray]) -> IndexedProblem:
        """`allowed[s]` tells which configurations the blocks of stage s may have."""
        stages = []
        for s, masks in enumerate(allowed):
            walks = [index.stages[s][0] for index in objective.indices]
            values = np.array([walk.value for walk in walks])  # [index][block][configuration]
            exits = zip(*(walk.exits for walk in walks), strict=True)
            bonus = {leaves[0].depth: np.array([leave.bonus for leave in leaves]) for leaves in exits}
            stages.append(IndexedStage(tuple(cost.blocks[s]), tuple(values.transpose(1, 0, 2)), bonus, tuple(masks)))
        base = np.array([index.base for index in objective.indices])
        return cls(tuple(stages), base, objective.link, cost.fixed, cost.budget)

    def fits(self, cost: np.ndarray) -> np.ndarray:
        return self.fixed + cost <= self.budget


@dataclass(frozen=True)
class Prefixes:
    """Beginnings of networks, cheapest first, each with where it came from."""

    cost: np.ndarray
    values: np.ndarray  # (indices, prefixes)
    trail: Trail = EMPTY

    def __len__(self) -> int:
        return len(self.cost)

    def choices(self, i: int) -> Choices:
        """Of entry i, from the empty network on."""
        return self.trail.choices(i)


class Admission(Protocol):
    """Which prefixes are worth keeping, told by what may follow them; they are given cheapest first."""

    def after_block(self, s: int, b: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray: ...

    def after_stage(self, s: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray: ...


Dominance = Callable[[np.ndarray, np.ndarray], np.ndarray]  # cost, values -> positions that stay


@dataclass(frozen=True)
class Budget:
    """Admits what does not exceed the budget yet."""

    problem: IndexedProblem

    def after_block(self, s: int, b: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self.problem.fits(cost)

    def after_stage(self, s: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self.problem.fits(cost)


def walk(problem: IndexedProblem, dominance: Dominance, admission: Admission) -> Prefixes:
    """Whole networks from the empty one, block by block, dropping what is dominated or not admitted."""
    prefixes = Prefixes(np.zeros(1), problem.base[:, None].astype(float))
    for s in range(len(problem.stages)):
        prefixes = _end_stage(
            problem, s, list(_depths(problem, s, prefixes, dominance, admission)), dominance, admission
        )
    return prefixes


def _depths(
    problem: IndexedProblem, s: int, prefixes: Prefixes, dominance: Dominance, admission: Admission
) -> Iterator[tuple[Prefixes, np.ndarray]]:
    """The lists after each depth of a stage, with the bonus of stopping there."""
    stage = problem.stages[s]
    for b in range(stage.max_depth):
        configs = stage.configs(b)
        configs = np.sort(configs[dominance(stage.cost[b][configs], stage.values[b][:, configs])])
        cost = np.add.outer(stage.cost[b][configs], prefixes.cost).ravel()
        values = (stage.values[b][:, configs, None] + prefixes.values[:, None, :]).reshape(len(problem.base), -1)
        order = np.argsort(cost, kind="stable")
        cost, values = cost[order], values[:, order]
        admitted = np.flatnonzero(admission.after_block(s, b, cost, values))
        kept = admitted[dominance(cost[admitted], values[:, admitted])]
        which, index = np.divmod(order[kept], max(1, len(prefixes)))
        trail = Trail.extended(prefixes.trail, len(prefixes), index, configs[which])
        prefixes = Prefixes(cost[kept], values[:, kept], trail)
        if b + 1 in stage.bonus:
            yield prefixes, stage.bonus[b + 1]


def _end_stage(
    problem: IndexedProblem,
    s: int,
    reached: Sequence[tuple[Prefixes, np.ndarray]],
    dominance: Dominance,
    admission: Admission,
) -> Prefixes:
    """One list from those of a stage's depths."""
    parents = [prefixes for prefixes, _ in reached]
    cost = np.concatenate([prefixes.cost for prefixes in parents])
    values = np.concatenate([prefixes.values + bonus[:, None] for prefixes, bonus in reached], axis=1)
    order = np.argsort(cost, kind="stable")
    cost, values = cost[order], values[:, order]
    admitted = np.flatnonzero(admission.after_stage(s, cost, values))
    kept = admitted[dominance(cost[admitted], values[:, admitted])]
    trail = Trail.merged([(prefixes.trail, len(prefixes)) for prefixes in parents], order[kept])
    return Prefixes(cost[kept], values[:, kept], trail)
