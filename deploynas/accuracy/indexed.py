"""The indexed estimator: accuracy as an increasing function of one or a few sums of contributions .

    ACC = link(u_1, ..., u_r),   u_i = base_i + depth contributions + block contributions, each in the form of eq. 3

Where the input size is open, contributions may deviate from size to size: each index is a sum once the size is given.

A sum does not saturate and accuracy does: the link sees to that, and since it rises with every index the exact frontier
remains within reach (`search.indexed_frontier`). Contributions to an index have no unit of their own; `worth_at` says
what a change of one decision is worth in accuracy at a given network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture, Depths, Ragged, Space
from deploynas.space.coefficients import IndexedObjective, Objective, SeparableObjective
from deploynas.space.link import Link


class SizeDeviationFile(BaseModel):
    depth: list[list[float]]
    block: list[list[list[float]]]


class IndexFile(BaseModel):
    base: float
    depth: list[list[float]]
    block: list[list[list[float]]]
    by_size: list[SizeDeviationFile] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_what_is_not_there(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        """`by_size` is absent where contributions are the same at every size, as in files of before."""
        return {key: value for key, value in write(self).items() if key != "by_size" or value}


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
class SizeDeviation:
    """What networks of one input size add to the contributions of an index."""

    depth: Sequence[Sequence[float]]
    block: Sequence[Sequence[Sequence[float]]]  # [stage][block][configuration]


@dataclass(frozen=True)
class Index:
    """One sum of contributions."""

    base: float
    depth: Depths
    block: Ragged  # [stage][block][configuration]
    by_size: tuple[SizeDeviation, ...] = ()  # at every input size; empty: contributions are the same at all of them

    @classmethod
    def from_arrays(
        cls,
        space: Space,
        base: float,
        depth: Sequence,
        block: Sequence,
        what: str = "index",
        by_size: Sequence[SizeDeviation] = (),
    ) -> Index:
        if not math.isfinite(base):
            raise InputError(f"the base of {what} must be finite, got {base}")
        if len(by_size) not in (0, len(space.sizes)):
            raise InputError(
                f"by_size of {what} has {len(by_size)} input sizes, space `{space.name}` has {len(space.sizes) or 1}"
            )

        def checked(depth: Sequence, block: Sequence, what: str) -> tuple[Depths, Ragged]:
            return space.require_depths(depth, f"depth of {what}"), space.require_blocks(block, f"block of {what}")

        at_sizes = zip(space.sizes, by_size, strict=False)
        deviations = [checked(own.depth, own.block, f"{what} at input size {size}") for size, own in at_sizes]
        return cls(float(base), *checked(depth, block, what), tuple(SizeDeviation(*own) for own in deviations))

    def at(self, size_index: int) -> Index:
        """With the contributions that it has at one input size."""
        return self._at[size_index] if self.by_size else self

    @cached_property
    def _at(self) -> tuple[Index, ...]:
        return tuple(
            Index(
                self.base,
                tuple(_added(*rows) for rows in zip(self.depth, own.depth, strict=True)),
                tuple(
                    tuple(_added(*rows) for rows in zip(*blocks, strict=True))
                    for blocks in zip(self.block, own.block, strict=True)
                ),
            )
            for own in self.by_size
        )

    def total(self, architecture: Architecture) -> float:
        """Added up in network order: stage by stage, its blocks and then its depth, as the search does."""
        if self.by_size:
            return self.at(architecture.size_index).total(architecture)
        total = self.base
        for s, choice in enumerate(architecture.choices):
            for b, c in enumerate(choice):
                total += self.block[s][b][c]
            total += self.depth[s][architecture.space.decisions.groups[s].depths.index(len(choice))]
        return total

    def objective(self, space: Space) -> SeparableObjective:
        if self.by_size:
            return SeparableObjective.joined([self.at(i).objective(space) for i in range(len(self.by_size))])
        return SeparableObjective.from_contributions(space, self.base, self.depth, self.block)


def _added(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


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
        return self.link(self.totals(rows))

    def totals(self, rows: np.ndarray) -> np.ndarray:
        """(rows, indices): the indices of many networks."""
        return self._totals(self.indices, self.space.decisions.active(rows))

    def draws(self, rows: np.ndarray) -> np.ndarray:
        """(refits, rows): the predictions of every refit."""
        active = self.space.decisions.active(rows)
        u = self._totals(self.indices, active)
        slopes, gradient, found = self.link.slopes(u), self.link.gradient(u), self.link(u)
        moved = [((self._totals(refit.indices, active) - u) * slopes).sum(axis=1) for refit in self.refits]
        return found + np.array(moved) + np.array([refit.link_step for refit in self.refits]) @ gradient.T

    def _totals(self, indices: Indices, active: np.ndarray) -> np.ndarray:
        flat = self.space.decisions.flat

        def total(index: Index) -> np.ndarray:
            found = index.base + active @ flat(index.depth, index.block)
            at_sizes = active[:, self.space.decisions.slices[-1]].T  # the last decision, where there are any
            for at_size, own in zip(at_sizes, index.by_size, strict=False):
                found += at_size * (active @ flat(own.depth, own.block))
            return found

        return np.stack([total(index) for index in indices], axis=1)

    def worth_at(self, architecture: Architecture, changed: Architecture) -> float:
        """What changing one network into another adds to the accuracy, for one decision or several."""
        return self.predict(changed) - self.predict(architecture)

    def contributions_at(self, architecture: Architecture) -> tuple[Depths, Ragged]:
        """Every contribution in accuracy at a network: the slopes of the link there times those to the indices."""
        slopes = self.link.slopes(np.array([self.indices_of(architecture)]))[0]
        indices = [index.at(architecture.size_index) for index in self.indices]
        depth = tuple(
            tuple(float(slopes @ values) for values in zip(*rows, strict=True))
            for rows in zip(*(index.depth for index in indices), strict=True)
        )
        block = tuple(
            tuple(
                tuple(float(slopes @ values) for values in zip(*rows, strict=True))
                for rows in zip(*stages, strict=True)
            )
            for stages in zip(*(index.block for index in indices), strict=True)
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
        Index.from_arrays(
            space,
            file.base,
            file.depth,
            file.block,
            f"index {i + 1}",
            [SizeDeviation(own.depth, own.block) for own in file.by_size],
        )
        for i, file in enumerate(files)
    )


def _index_file(index: Index) -> IndexFile:
    return IndexFile(
        base=index.base,
        depth=[list(row) for row in index.depth],
        block=[[list(row) for row in stage] for stage in index.block],
        by_size=[SizeDeviationFile.model_validate(vars(own)) for own in index.by_size],
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
