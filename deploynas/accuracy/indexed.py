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


class RefitFile(BaseModel):
    indices: list[IndexFile]
    link: list[float]  # added to the link's parameters, in the order of `Link.gradient`


class IndexedFile(EstimatorFile):
    kind: Literal["indexed"] = "indexed"
    indices: list[IndexFile]
    link: LinkFile
    refits: list[RefitFile] = Field(default_factory=list)
    resampled: list[list[IndexFile]] = Field(default_factory=list, exclude=True)  # files of before: refits of one link
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


@dataclass(frozen=True)
class Refit:
    """What the fit might as well have been, from resampled networks or images: near the fit, and judged by its slopes.

    Parameters of a link that the data hardly tell move far, and together: what they do is small, and a straight line.
    """

    indices: Indices
    link_step: np.ndarray  # in the order of `Link.gradient`


@dataclass(frozen=True, eq=False)
class IndexedEstimator(StoredEstimator):
    """Accuracy (0..1) from indices through a link.

    How predictions scatter among the refits is their standard error. Some numbers per refit say as much as a
    covariance of all parameters with each other, which would be a hundred times as long. `lack_of_fit` is the standard
    deviation of what no choice of parameters explains, where measured networks tell.
    """

    File: ClassVar = IndexedFile

    indices: Indices
    link: Link
    refits: tuple[Refit, ...] = ()
    lack_of_fit: float | None = None

    def __post_init__(self) -> None:
        if any(len(indices) != self.link.indices for indices in (self.indices, *(r.indices for r in self.refits))):
            raise InputError(f"the link takes {self.link.indices} indices")
        if any(refit.link_step.shape != (self.link.parameters,) for refit in self.refits):
            raise InputError(f"a refit moves {self.link.parameters} parameters of the link")
        if self.lack_of_fit is not None and not 0 <= self.lack_of_fit < math.inf:
            raise InputError(f"lack_of_fit must be finite and not negative, got {self.lack_of_fit}")

    def indices_of(self, architecture: Architecture) -> tuple[float, ...]:
        self.space.require_member(architecture)
        return tuple(index.total(architecture) for index in self.indices)

    def predict(self, architecture: Architecture) -> float:
        return float(self.link(np.array([self.indices_of(architecture)]))[0])

    def predict_se(self, architecture: Architecture) -> float | None:
        """From the scatter of the refits and the lack of fit; None without refits."""
        if len(self.refits) < 2:
            return None
        self.space.require_member(architecture)
        scatter = float(np.var(self.draws(self.space.rows([architecture])), axis=0, ddof=1)[0])
        return math.sqrt(scatter + (self.lack_of_fit or 0.0) ** 2)

    def predict_rows(self, rows: np.ndarray) -> np.ndarray:
        """Of many networks, as rows of decisions; equal to `predict` but for rounding."""
        return self.link(self._totals(self.indices, self.space.decisions.active(rows)))

    def draws(self, rows: np.ndarray) -> np.ndarray:
        """(refits, rows): the predictions of every refit."""
        active = self.space.decisions.active(rows)
        u = self._totals(self.indices, active)
        slopes, gradient, found = self.link.slopes(u), self.link.gradient(u), self.link(u)
        moved = [((self._totals(refit.indices, active) - u) * slopes).sum(axis=1) for refit in self.refits]
        return found + np.array(moved) + np.array([refit.link_step for refit in self.refits]) @ gradient.T

    def _totals(self, indices: Indices, active: np.ndarray) -> np.ndarray:
        flat = self.space.decisions.flat
        return np.stack([i.base + active @ flat(i.depth, i.block) for i in indices], axis=1)

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
            "refits": [
                RefitFile(indices=[_index_file(i) for i in refit.indices], link=refit.link_step.tolist())
                for refit in self.refits
            ],
            "lack_of_fit": self.lack_of_fit,
        }

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> IndexedEstimator:
        assert isinstance(file, IndexedFile)
        link = _link(file.link)
        refits = [Refit(_indices(space, refit.indices), np.array(refit.link)) for refit in file.refits]
        refits += [Refit(_indices(space, indices), np.zeros(link.parameters)) for indices in file.resampled]
        return cls(space, _indices(space, file.indices), link, tuple(refits), file.lack_of_fit)


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
