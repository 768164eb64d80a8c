"""Rows of decisions as torch takes them: which configuration every block has, for every image.

A path is a row (`deploynas.space.decisions`), one per image, in an integer tensor. Paths live on the CPU, where a
batch is sorted by them without waiting for a device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deploynas.space import Space
from deploynas.supernet.elastic import INACTIVE


def as_paths(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(rows.astype(np.int64))


@dataclass(frozen=True)
class RandomPaths:
    """Paths drawn as they are needed, all of one input size if that is given."""

    space: Space
    rng: np.random.Generator
    size_index: int | None = None

    def draw(self, images: int) -> Tensor:
        rows = self.space.decisions.draw(images, self.rng)
        if self.size_index is not None:
            rows[:, -1] = self.size_index
        return as_paths(rows)


def block_choices(space: Space, paths: Tensor) -> list[list[Tensor]]:
    """[group][choice]: every image's option there, or INACTIVE where its depth does not reach."""
    decisions, rows = space.decisions, paths.cpu().numpy()
    decisions.require_rows(rows)
    chosen = torch.from_numpy(np.where(decisions.counts(rows), rows, INACTIVE).T.astype(np.int64, order="C"))
    groups = space.built_groups
    return [[chosen[decisions.column(g, i)] for i in range(len(group.choices))] for g, group in enumerate(groups)]
