"""Paths as numbers to regress on: which column of a path holds which decision, and two sets of contrasts.

A path is a row of indices, laid out as in `supernet.paths`: a depth a stage, then a configuration a block.
Under uniform sampling the least-squares projection of a score on the bilinear form (eq. 3) has a closed form,
    depth[s][d] = E[y | depth_s = d] - E[y],   block[s][b][c] = E[y | c, b takes part] - E[y | b takes part],
because the choices of a block are independent of everything else. The paper's own contributions are
    depth[s][d] as above,                      block[s][b][c] = E[y | c, depth_s = home(b)] - E[y],
where home(b) is the shallowest legal depth with block b in it: depth b itself for b >= 2 wherever it is legal,
and the stage's shallowest depth for the first block. Both are linear in the coefficients of a regression on
contrasts that sum to zero, so one fit with its covariance serves either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from deploynas.space import Architecture, Space

Estimand = Literal["paper", "projection"]
ESTIMANDS: tuple[Estimand, ...] = ("projection", "paper")


class Decisions:
    """Every depth and every configuration of a space, numbered: depths first, then blocks, stage by stage."""

    def __init__(self, space: Space) -> None:
        self.space = space
        stages = space.stages
        self.blocks = [(s, b) for s, stage in enumerate(stages) for b in range(stage.max_depth)]
        self.columns = len(stages) + len(self.blocks)
        self.sizes = [len(stage.depths) for stage in stages] + [len(stages[s].configs) for s, _ in self.blocks]
        self.dtype = np.uint8 if max(self.sizes) <= 256 else np.uint16  # of a path: samples are kept by the million
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])  # of each column's options, in a vector of all

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def home(self) -> list[int]:
        """Of every block, the index of the shallowest depth that has it."""
        return [next(i for i, d in enumerate(self.space.stages[s].depths) if d > b) for s, b in self.blocks]

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """`n` paths, every decision uniform and independent."""
        return np.stack([rng.integers(size, size=n) for size in self.sizes], axis=1).astype(self.dtype)

    def paths_of(self, architectures: Sequence[Architecture]) -> np.ndarray:
        rows = []
        for architecture in architectures:
            self.space.require_member(architecture)
            stages = self.space.stages
            depths = [stage.depths.index(d) for stage, d in zip(stages, architecture.depths, strict=True)]
            padded = [
                (*choice, *(0,) * (stage.max_depth - len(choice)))
                for stage, choice in zip(stages, architecture.choices, strict=True)
            ]
            rows.append([*depths, *(c for choice in padded for c in choice)])
        return np.array(rows, dtype=self.dtype).reshape(len(rows), self.columns)

    def architecture_of(self, path: np.ndarray) -> Architecture:
        choices, column = [], len(self.space.stages)
        for stage, depth in zip(self.space.stages, path.tolist(), strict=False):
            choices.append(path[column : column + stage.depths[depth]].tolist())
            column += stage.max_depth
        return self.space.architecture(choices)

    def taking_part(self, paths: np.ndarray) -> np.ndarray:
        """(paths, blocks): whether the depth reaches the block."""
        return np.stack([paths[:, s] >= home for (s, _), home in zip(self.blocks, self.home, strict=True)], axis=1)

    def ragged(self, values: np.ndarray) -> tuple[list[list[float]], list[list[list[float]]]]:
        """A vector over all decisions as depth[s][i] and block[s][b][c]."""
        rows = [values[start:end].tolist() for start, end in zip(self.starts[:-1], self.starts[1:], strict=True)]
        depth, rest = rows[: len(self.space.stages)], iter(rows[len(self.space.stages) :])
        return depth, [[next(rest) for _ in range(stage.max_depth)] for stage in self.space.stages]


@dataclass(frozen=True)
class _Group:
    """Columns of the regression that share one decision, and the depths of its stage where they count."""

    column: int
    stage: int
    depths: range  # indices into the stage's depths
    start: int


class Contrasts:
    """The columns of a regression: an intercept, and sum-to-zero contrasts of every decision."""

    def __init__(self, decisions: Decisions, estimand: Estimand) -> None:
        self.decisions, self.estimand = decisions, estimand
        stages = decisions.space.stages
        spans = [(s, s, range(len(stage.depths))) for s, stage in enumerate(stages)]
        for i, (s, _) in enumerate(decisions.blocks):
            column, home, end = len(stages) + i, decisions.home[i], len(stages[s].depths)
            if estimand == "paper":  # what a block is worth at home, apart from what it is worth deeper
                spans += [(column, s, range(home, home + 1)), (column, s, range(home + 1, end))]
            else:
                spans += [(column, s, range(home, end))]
        self.groups: list[_Group] = []
        self.size = 1
        for column, stage, depths in spans:
            if len(depths) and decisions.sizes[column] > 1:
                self.groups.append(_Group(column, stage, depths, self.size))
                self.size += decisions.sizes[column] - 1

    def matrix(self, paths: np.ndarray) -> np.ndarray:
        """A row a path; the first column is the intercept."""
        x = np.zeros((len(paths), self.size))
        x[:, 0] = 1
        for group in self.groups:
            options = self.decisions.sizes[group.column]
            counts = np.isin(paths[:, group.stage], group.depths)
            # the last row, all zeros, is for paths in which the decision takes no part
            table = np.vstack([_sum_to_zero(options), np.zeros(options - 1)])
            rows = np.where(counts, paths[:, group.column], options)
            x[:, group.start : group.start + options - 1] = table[rows]
        return x

    @cached_property
    def contributions(self) -> np.ndarray:
        """(1 + decisions, columns): the base and every contribution as combinations of the coefficients."""
        decisions = self.decisions
        combine = np.zeros((1 + len(decisions), self.size))
        combine[0, 0] = 1
        for group in self.groups:
            options = decisions.sizes[group.column]
            rows = slice(1 + decisions.starts[group.column], 1 + decisions.starts[group.column + 1])
            columns = slice(group.start, group.start + options - 1)
            if self.estimand == "projection" or self._at_home(group):
                combine[rows, columns] = _sum_to_zero(options)
        if self.estimand == "paper":
            for i, (s, _) in enumerate(decisions.blocks):  # relative to E[y], so the depth's own worth is in
                column = len(decisions.space.stages) + i
                rows = slice(1 + decisions.starts[column], 1 + decisions.starts[column + 1])
                combine[rows] += combine[1 + decisions.starts[s] + decisions.home[i]]
        return combine

    def _at_home(self, group: _Group) -> bool:
        """Depths are, everywhere; blocks at their shallowest depth."""
        block = group.column - len(self.decisions.space.stages)
        return block < 0 or group.depths[0] == self.decisions.home[block]


def _sum_to_zero(options: int) -> np.ndarray:
    """(options, options - 1): deviations from the mean, the last one minus the sum of the others."""
    return np.vstack([np.eye(options - 1), -np.ones(options - 1)])
