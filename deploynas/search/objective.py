"""What is maximised, by its coefficients: an accuracy that separates by stage (eq. 3), one that couples
stages (eq. 4), or one that can only be asked.

Separable is the case that counts: within a stage and a depth every block adds its own worth, so prefixes of a
network can be compared with each other and the frontier follows by merging. The others keep the same
interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from deploynas.errors import InputError
from deploynas.space import Architecture, Ragged, Space


@dataclass(frozen=True)
class Exit:
    """A depth at which a walk through the blocks of a stage may stop, and what stopping there is worth."""

    depth_index: int
    depth: int
    bonus: float


@dataclass(frozen=True)
class Walk:
    """The worth of blocks 0, 1, ... of a stage, shared by the depths among its exits (shallowest first).

    Eq. 3 needs one walk a stage. A learned form whose blocks are worth something else at every depth has one
    walk for each depth.
    """

    value: np.ndarray  # [block][configuration]
    exits: tuple[Exit, ...]


class Encoding:
    """Where `space.encode` puts each decision: a one-hot row for every block, then one for every depth."""

    def __init__(self, space: Space) -> None:
        self.block_row: list[list[int]] = []  # [stage][block] -> offset of its configurations
        self.depth_row: list[int] = []  # [stage] -> offset of its depths
        offset = 0
        for stage in space.stages:
            self.block_row.append([offset + b * len(stage.configs) for b in range(stage.max_depth)])
            offset += stage.max_depth * len(stage.configs)
        self.alphas = offset
        for stage in space.stages:
            self.depth_row.append(offset)
            offset += len(stage.depths)
        self.size = offset
        self.row_of = np.empty(offset, dtype=int)  # entry -> number of its row
        starts = [start for stage in self.block_row for start in stage] + self.depth_row
        for row, (start, end) in enumerate(zip(starts, [*starts[1:], offset], strict=True)):
            self.row_of[start:end] = row
        self.row_starts = np.array(starts)


@dataclass(frozen=True)
class Separable:
    """base + the worth of every block that takes part + the bonus of every depth, added in network order."""

    base: float
    stages: tuple[tuple[Walk, ...], ...]
    couples_stages = False

    def accuracy(self, architecture: Architecture) -> float:
        total = self.base
        for walks, choice in zip(self.stages, architecture.choices, strict=True):
            walk, leave = next((w, e) for w in walks for e in w.exits if e.depth == len(choice))
            for b, c in enumerate(choice):
                total += float(walk.value[b, c])
            total += leave.bonus
        return total


@dataclass(frozen=True)
class Coupled:
    """base + linear . x + products of pairs of entries of the encoding x."""

    space: Space
    base: float
    linear: np.ndarray
    first: np.ndarray
    second: np.ndarray
    value: np.ndarray
    couples_stages = True

    def accuracy(self, architecture: Architecture) -> float:
        x = np.concatenate(self.space.encode(architecture))
        return float(self.base + x @ self.linear + (x[self.first] * x[self.second]) @ self.value)

    @cached_property
    def matrix(self) -> np.ndarray:
        """The pairs as an upper triangle."""
        matrix = np.zeros((len(self.linear), len(self.linear)))
        matrix[self.first, self.second] = self.value
        return matrix


class Predictor(Protocol):
    """Any estimator at all, such as a neural network: it can be asked, and that is all."""

    @property
    def space(self) -> Space: ...

    def predict(self, architecture: Architecture) -> float: ...


@dataclass(frozen=True)
class Opaque:
    """An estimator without coefficients: only a search that asks for predictions can use it."""

    predictor: Predictor
    couples_stages = True

    def accuracy(self, architecture: Architecture) -> float:
        # the same space may go by another name there
        return float(self.predictor.predict(self.predictor.space.architecture(architecture.choices)))


Objective = Separable | Coupled | Opaque


def objective_of(space: Space, estimator: Predictor) -> Objective:
    """Read the coefficients of an estimator; they decide what kind of problem it makes."""
    if not hasattr(estimator, "predict") or not hasattr(estimator, "space"):
        raise InputError(f"an estimator must have `space` and `predict`, got {type(estimator).__name__}")
    space.require_hash(estimator.space.hash, "the estimator")
    if hasattr(estimator, "block") and hasattr(estimator, "depth"):
        return _contributions(space, estimator.base, estimator.depth, estimator.block)  # type: ignore[attr-defined]
    if hasattr(estimator, "linear") and hasattr(estimator, "first"):
        coupled = Coupled(
            space,
            float(estimator.base),  # type: ignore[attr-defined]
            np.array(estimator.linear, dtype=float),
            np.array(estimator.first, dtype=int),
            np.array(estimator.second, dtype=int),  # type: ignore[attr-defined]
            np.array(estimator.value, dtype=float),  # type: ignore[attr-defined]
        )
        return _separated(coupled) or coupled
    return Opaque(estimator)


def _contributions(space: Space, base: float, depth: Sequence[Sequence[float]], block: Ragged) -> Separable:
    """Eq. 3: what a block is worth does not depend on the depth, so one walk serves all depths."""
    stages = []
    for s, stage in enumerate(space.stages):
        exits = tuple(Exit(i, d, float(depth[s][i])) for i, d in enumerate(stage.depths))
        stages.append((Walk(np.array(block[s], dtype=float), exits),))
    return Separable(float(base), tuple(stages))


def _separated(form: Coupled) -> Separable | None:
    """The same form stage by stage, or None if a product reaches beyond a block and its own stage's depth."""
    space, encoding = form.space, Encoding(form.space)
    stage_of = np.concatenate(
        [np.repeat(np.arange(len(space.stages)), [s.max_depth * len(s.configs) for s in space.stages]),
         np.repeat(np.arange(len(space.stages)), [len(s.depths) for s in space.stages])]
    )  # fmt: skip
    block_by_depth = (form.first < encoding.alphas) & (form.second >= encoding.alphas)
    within_row = encoding.row_of[form.first] == encoding.row_of[form.second]  # always zero: one-hot
    within_stage = block_by_depth & (stage_of[form.first] == stage_of[form.second])
    if not (within_stage | within_row).all():
        return None
    stages = []
    for s, stage in enumerate(space.stages):
        start, configs = encoding.block_row[s][0], len(stage.configs)
        blocks = slice(start, start + stage.max_depth * configs)
        walks = []
        for i, depth in enumerate(stage.depths):
            entry = encoding.depth_row[s] + i
            worth = (form.linear[blocks] + form.matrix[blocks, entry]).reshape(-1, configs)
            # the encoding gives blocks beyond the depth their first configuration
            bonus = form.linear[entry] + worth[depth:, 0].sum()
            walks.append(Walk(worth[:depth], (Exit(i, depth, float(bonus)),)))
        stages.append(tuple(walks))
    return Separable(form.base, tuple(stages))
