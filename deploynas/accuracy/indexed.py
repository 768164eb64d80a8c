"""The indexed estimator: accuracy as an increasing function of one or a few sums of contributions .

    ACC = link(u_1, ..., u_r),   u_i = base_i + depth contributions + block contributions, each in the form of eq. 3

A sum does not saturate and accuracy does: the link sees to that, and since it rises with every index the exact frontier
remains within reach (`search.indexed_frontier`). Contributions to an index have no unit of their own; `worth_at` says
what a change of one decision is worth in accuracy at a given network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture, Depths, Ragged, Space
from deploynas.space.coefficients import IndexedObjective, Objective, SeparableObjective
from deploynas.space.link import Link


class IndexFile(BaseModel):
    base: float
    depth: list[list[float]]
    block: list[list[list[float]]]


class LinkFile(BaseModel):
    constant: float
    linear: list[float]
    rise: list[float]
    steepness: list[list[float]]
    shift: list[float]
    offsets: list[float]
    weights: list[float]


class IndexedFile(EstimatorFile):
    kind: Literal["indexed"] = "indexed"
    indices: list[IndexFile]
    link: LinkFile
    resampled: list[list[IndexFile]] = Field(default_factory=list)
    lack_of_fit: float | None = None


@dataclass(frozen=True)
class Index:
    """One sum of contributions."""

    base: float
    depth: Depths
    block: Ragged  # [stage][block][configuration]

    @classmethod
    def from_arrays(cls, space: Space, base: float, depth: Sequence, block: Sequence, what: str = "index") -> Index:
        if not math.isfinite(base):
            raise InputError(f"the base of {what} must be finite, got {base}")
        depths = space.require_depths(depth, f"depth of {what}")
        return cls(float(base), depths, space.require_blocks(block, f"block of {what}"))

    def total(self, architecture: Architecture) -> float:
        """Added up in network order: stage by stage, its blocks and then its depth, as the search does."""
        total = self.base
        for s, choice in enumerate(architecture.choices):
            for b, c in enumerate(choice):
                total += self.block[s][b][c]
            total += self.depth[s][architecture.space.decisions.groups[s].depths.index(len(choice))]
        return total

    def objective(self, space: Space) -> SeparableObjective:
        return SeparableObjective.from_contributions(space, self.base, self.depth, self.block)


Indices = tuple[Index, ...]


@dataclass(frozen=True, eq=False)
class IndexedEstimator(StoredEstimator):
    """Accuracy (0..1) from indices through a link.

    `resampled` holds the indices of a few refits on resampled networks or images: how predictions scatter among
    them is their standard error. Some numbers per refit say as much as a covariance of all contributions with each
    other, which would be a hundred times as long. `lack_of_fit` is the standard deviation of what no choice of
    contributions explains, where measured networks tell.
    """

    File: ClassVar = IndexedFile

    indices: Indices
    link: Link
    resampled: tuple[Indices, ...] = ()
    lack_of_fit: float | None = None

    def __post_init__(self) -> None:
        if any(len(indices) != self.link.indices for indices in (self.indices, *self.resampled)):
            raise InputError(f"the link takes {self.link.indices} indices")
        if self.lack_of_fit is not None and not 0 <= self.lack_of_fit < math.inf:
            raise InputError(f"lack_of_fit must be finite and not negative, got {self.lack_of_fit}")

    def indices_of(self, architecture: Architecture) -> tuple[float, ...]:
        self.space.require_member(architecture)
        return tuple(index.total(architecture) for index in self.indices)

    def predict(self, architecture: Architecture) -> float:
        return float(self.link(np.array([self.indices_of(architecture)]))[0])

    def predict_se(self, architecture: Architecture) -> float | None:
        """From the scatter of the refits and the lack of fit; None without refits.

        Refits keep the link, so what is uncertain about its shape is left out: the standard error is too small
        where few networks or images tell the link, which is most of all among the best networks. A fit from images
        knows no lack of fit either: what no choice of contributions explains is left out as well.
        """
        if len(self.resampled) < 2:
            return None
        self.space.require_member(architecture)
        totals = [[index.total(architecture) for index in indices] for indices in self.resampled]
        scatter = float(np.var(self.link(np.array(totals)), ddof=1))
        return math.sqrt(scatter + (self.lack_of_fit or 0.0) ** 2)

    def worth_at(self, architecture: Architecture, changed: Architecture) -> float:
        """What changing one network into another adds to the accuracy, for one decision or several."""
        return self.predict(changed) - self.predict(architecture)

    def contributions_at(self, architecture: Architecture) -> tuple[Depths, Ragged]:
        """Every contribution in accuracy at a network: the slopes of the link there times those to the indices."""
        slopes = self.link.slopes(np.array([self.indices_of(architecture)]))[0]
        depth = tuple(
            tuple(float(slopes @ values) for values in zip(*rows, strict=True))
            for rows in zip(*(index.depth for index in self.indices), strict=True)
        )
        block = tuple(
            tuple(
                tuple(float(slopes @ values) for values in zip(*rows, strict=True))
                for rows in zip(*stages, strict=True)
            )
            for stages in zip(*(index.block for index in self.indices), strict=True)
        )
        return depth, block

    def objective(self) -> Objective:
        return IndexedObjective.of(tuple(index.objective(self.space) for index in self.indices), self.link)

    def _coefficients(self) -> dict[str, object]:
        return {
            "indices": [_index_file(index) for index in self.indices],
            "link": _link_file(self.link),
            "resampled": [[_index_file(index) for index in indices] for indices in self.resampled],
            "lack_of_fit": self.lack_of_fit,
        }

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> IndexedEstimator:
        assert isinstance(file, IndexedFile)
        resampled = tuple(_indices(space, indices) for indices in file.resampled)
        return cls(space, _indices(space, file.indices), _link(file.link), resampled, file.lack_of_fit)


def _indices(space: Space, files: Sequence[IndexFile]) -> Indices:
    return tuple(
        Index.from_arrays(space, file.base, file.depth, file.block, f"index {i + 1}") for i, file in enumerate(files)
    )


def _index_file(index: Index) -> IndexFile:
    return IndexFile(
        base=index.base,
        depth=[list(row) for row in index.depth],
        block=[[list(row) for row in stage] for stage in index.block],
    )


def _link(file: LinkFile) -> Link:
    rows = {len(row) for row in file.steepness}
    if rows - {len(file.linear)}:
        raise InputError("the parts of the link do not fit each other")
    return Link(
        file.constant,
        np.array(file.linear),
        np.array(file.rise),
        np.array(file.steepness).reshape(len(file.steepness), len(file.linear)),
        np.array(file.shift),
        np.array(file.offsets),
        np.array(file.weights),
    )


def _link_file(link: Link) -> LinkFile:
    return LinkFile(
        constant=link.constant,
        linear=link.linear.tolist(),
        rise=link.rise.tolist(),
        steepness=link.slopes_in.tolist(),
        shift=link.shift.tolist(),
        offsets=link.offsets.tolist(),
        weights=link.weights.tolist(),
    )
