"""What estimators and tables hand out to a search: what is maximised and what is limited, by coefficients.

An estimator hands out an `Objective`: a score that separates by stage (eq. 3), one or several such sums behind an
increasing link, a score that couples stages (eq. 4), or one that can only be asked. A table hands out a `Cost`. Neither
says how to search; a solver looks at the kind, and refuses one that it does not know.

Separable is the case that counts: within a stage and a depth every block adds its own worth, so prefixes of a
network can be compared with each other and the frontier follows by merging.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from deploynas.errors import InputError
from deploynas.space.architecture import Architecture
from deploynas.space.decisions import Decisions, Depths, Ragged
from deploynas.space.link import Link
from deploynas.space.space import Space

if TYPE_CHECKING:
    from typing_extensions import Self

Scale = Literal["accuracy", "ordinal"]  # a fraction, 0..1; or a number that only ranks, whatever its unit
Unit = Literal["ms", "count", "bytes"]


class Objective(ABC):
    """What is maximised. Solvers know some kinds of it; every kind can score a network."""

    form: ClassVar[str]  # for people: "a score ..."

    scale: Scale

    @abstractmethod
    def score(self, architecture: Architecture) -> float: ...

    def at(self, size_index: int) -> Self:
        """What is maximised among networks with this input size."""
        return self


@dataclass(frozen=True)
class Exit:
    """A depth at which a walk through the blocks of a stage may stop, and what stopping there is worth."""

    depth_index: int
    depth: int
    bonus: float


@dataclass(frozen=True)
class Walk:
    """The worth of blocks 0, 1, ... of a stage, shared by the depths among its exits (shallowest first).

    Eq. 3 needs one walk per stage. A learned form whose blocks are worth something else at every depth has one
    walk for each depth.
    """

    value: np.ndarray  # [block][configuration], 0 beyond the options of a block
    exits: tuple[Exit, ...]


@dataclass(frozen=True)
class SeparableObjective(Objective):
    """base + the worth of every block that takes part + the bonus of every depth, added in network order."""

    base: float
    stages: tuple[tuple[Walk, ...], ...]
    scale: Scale = "accuracy"
    # where decisions are worth something else at every input size: the sum at each, and no coefficients of its own
    by_size: tuple[SeparableObjective, ...] = ()
    form: ClassVar[str] = "a score that separates by stage"

    @classmethod
    def from_contributions(
        cls, space: Space, base: float, depth: Depths, block: Ragged, scale: Scale = "accuracy"
    ) -> SeparableObjective:
        """Eq. 3: what a block is worth does not depend on the depth, so one walk serves all depths."""
        stages = []
        for s, group in enumerate(space.decisions.groups):
            exits = tuple(Exit(i, d, float(depth[s][i])) for i, d in enumerate(group.depths))
            stages.append((Walk(padded(block[s]), exits),))
        return cls(float(base), tuple(stages), scale)

    @classmethod
    def joined(cls, by_size: Sequence[SeparableObjective]) -> SeparableObjective:
        """One score of the scores at every input size: it separates by stage once the size is given."""
        return replace(by_size[0], base=math.nan, stages=(), by_size=tuple(by_size))

    @classmethod
    def nothing(cls, space: Space) -> SeparableObjective:
        """Every network is worth 0."""
        groups = space.decisions.groups
        return cls.from_contributions(
            space,
            0.0,
            tuple((0.0,) * len(group.depths) for group in groups),
            tuple(tuple((0.0,) * len(choice.options) for choice in group.choices) for group in groups),
        )

    def at(self, size_index: int) -> SeparableObjective:
        return self.by_size[size_index] if self.by_size else self

    def score(self, architecture: Architecture) -> float:
        if self.by_size:
            return self.by_size[architecture.size_index].score(architecture)
        total = self.base
        for walks, choice in zip(self.stages, architecture.choices, strict=True):
            walk, leave = next((w, e) for w in walks for e in w.exits if e.depth == len(choice))
            for b, c in enumerate(choice):
                total += float(walk.value[b, c])
            total += leave.bonus
        return total


@dataclass(frozen=True)
class IndexedObjective(Objective):
    """link(u_1, ..., u_r): every index a sum in the form of eq. 3, the link increasing in each of them."""

    indices: tuple[SeparableObjective, ...]
    link: Link
    scale: Scale = "accuracy"
    form: ClassVar[str] = "a score of several sums behind a link"

    def __post_init__(self) -> None:
        if len(self.indices) != self.link.indices:
            raise InputError(f"the link takes {self.link.indices} indices, got {len(self.indices)}")
        if any(len(walks) != 1 for index in self.indices for walks in index.stages):
            raise InputError("what a block adds to an index may not depend on the depth of its stage")

    @classmethod
    def of(cls, indices: tuple[SeparableObjective, ...], link: Link) -> IndexedObjective:
        """A single index is a kind of its own, since more solvers can maximise it."""
        return OneIndexObjective(indices, link) if len(indices) == 1 else IndexedObjective(indices, link)

    def at(self, size_index: int) -> Self:
        return replace(self, indices=tuple(index.at(size_index) for index in self.indices))

    def score(self, architecture: Architecture) -> float:
        return float(self.link(np.array([[index.score(architecture) for index in self.indices]]))[0])


@dataclass(frozen=True)
class OneIndexObjective(IndexedObjective):
    """link(u): whatever maximises the index maximises the score."""

    form: ClassVar[str] = "a score of one sum behind a link"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.indices) != 1:
            raise InputError(f"a score of one sum cannot have {len(self.indices)} indices")

    @property
    def index(self) -> SeparableObjective:
        return self.indices[0]

    def linked(self, index: np.ndarray) -> np.ndarray:
        """Scores of networks whose indices are known."""
        return self.link(index[:, None])


@dataclass(frozen=True)
class CoupledObjective(Objective):
    """base + linear . x + products of pairs of entries of x, which is (alpha, beta) as `space.encode` has it."""

    decisions: Decisions
    base: float
    linear: np.ndarray
    first: np.ndarray
    second: np.ndarray
    value: np.ndarray
    scale: Scale = "accuracy"
    form: ClassVar[str] = "a score with terms across stages"

    def score(self, architecture: Architecture) -> float:
        x = self.decisions.one_hot(self.decisions.rows([architecture.choices]))[0, self.decisions.encoding]
        return float(self.base + x @ self.linear + (x[self.first] * x[self.second]) @ self.value)

    @cached_property
    def matrix(self) -> np.ndarray:
        """The pairs as an upper triangle."""
        matrix = np.zeros((len(self.linear), len(self.linear)))
        matrix[self.first, self.second] = self.value
        return matrix

    def separated(self) -> SeparableObjective | None:
        """The same form stage by stage, or None if a product reaches beyond a block and its own stage's depth."""
        decisions = self.decisions
        column_of = np.repeat(np.arange(decisions.columns), decisions.sizes)[decisions.encoding]
        group_of = np.array([*range(len(decisions.groups)), *(g for g, _ in decisions.places)])
        first, second = column_of[self.first], column_of[self.second]
        block_by_depth = (first >= len(decisions.groups)) & (second < len(decisions.groups))
        within_stage = block_by_depth & (group_of[first] == group_of[second])
        within_column = first == second  # always zero: one-hot
        if not (within_stage | within_column).all():
            return None
        stages = []
        for s, group in enumerate(decisions.groups):
            depths = decisions.encoded_at[decisions.slices[s]]
            columns = [decisions.column(s, b) for b in range(len(group.choices))]
            blocks = [decisions.encoded_at[decisions.slices[column]] for column in columns]
            walks = []
            for i, depth in enumerate(group.depths):
                worth = padded([self.linear[block] + self.matrix[block, depths[i]] for block in blocks])
                # the encoding gives blocks beyond the depth their first configuration
                bonus = self.linear[depths[i]] + worth[depth:, 0].sum()
                walks.append(Walk(worth[:depth], (Exit(i, depth, float(bonus)),)))
            stages.append(tuple(walks))
        return SeparableObjective(self.base, tuple(stages), self.scale)


@dataclass(frozen=True)
class OpaqueObjective(Objective):
    """A score without coefficients: only a search that asks for predictions can use it."""

    predictor: Predictor
    scale: Scale = "accuracy"
    form: ClassVar[str] = "a score without coefficients, which can only be asked"

    def score(self, architecture: Architecture) -> float:
        return float(self.predictor.predict(architecture))


class Predictor(Protocol):
    """Anything that can be asked, such as a neural network; `ask` makes an `Estimator` of it."""

    @property
    def space(self) -> Space: ...

    def predict(self, architecture: Architecture) -> float: ...


@runtime_checkable
class Estimator(Protocol):
    """What a search can use: predicts a score, may know its standard error, and hands out the objective."""

    @property
    def space(self) -> Space: ...

    def predict(self, architecture: Architecture) -> float: ...

    def predict_se(self, architecture: Architecture) -> float | None: ...

    def objective(self) -> Objective: ...


@dataclass(frozen=True)
class _Asked:
    predictor: Predictor
    scale: Scale

    @property
    def space(self) -> Space:
        return self.predictor.space

    def predict(self, architecture: Architecture) -> float:
        return float(self.predictor.predict(architecture))

    def predict_se(self, architecture: Architecture) -> float | None:
        return None

    def objective(self) -> Objective:
        return OpaqueObjective(self.predictor, self.scale)


def ask(predictor: Predictor, scale: Scale = "accuracy") -> Estimator:
    """An estimator of your own, with `space` and `predict` alone, for `search`; `scale="ordinal"` if it only ranks."""
    if scale not in ("accuracy", "ordinal"):
        raise InputError(f"a score is on the scale `accuracy` or `ordinal`, got {scale!r}")
    return _Asked(predictor, scale)


def require_estimator(estimator: Estimator) -> None:
    """Refuse, with what is missing, something that a search cannot use."""
    if not isinstance(estimator, Estimator):
        needed = ("space", "predict", "predict_se", "objective")
        missing = [f"`{name}`" for name in needed if name not in dir(estimator)]
        raise InputError(
            f"an estimator must have {', '.join(f'`{name}`' for name in needed)}; "
            f"{type(estimator).__name__} lacks {', '.join(missing)}",
            hint="`deploynas.ask(estimator)` makes one of anything that has `space` and `predict`",
        )


@dataclass(frozen=True)
class Cost:
    """What a network costs by its coefficients, and how much it may: added up, or the maximum over its parts."""

    name: str
    kind: Literal["sum", "max"]
    unit: Unit
    fixed: float
    blocks: tuple[np.ndarray, ...]  # [stage] -> [block][configuration], not negative; 0 beyond a block's options
    budget: float = math.inf
    relative_error: float | None = None  # validated, of a prediction; None: not known (or exact, for a resource)
    # of a space that leaves the input size open, every block costs something else at every size: the cost at each, and
    # no coefficients of its own
    by_size: tuple[Cost, ...] = ()

    @classmethod
    def joined(cls, by_size: Sequence[Cost]) -> Cost:
        """One cost of the costs at every input size."""
        first = by_size[0]
        return replace(first, fixed=math.nan, blocks=(), by_size=tuple(by_size)) if len(by_size) > 1 else first

    def at(self, size_index: int) -> Cost:
        """The cost of networks with this input size, which is no longer a choice that costs anything."""
        if not self.by_size:
            return self
        nothing = np.zeros((1, len(self.by_size)))
        own = self.by_size[size_index]
        return replace(own, name=self.name, budget=self.budget, blocks=(*own.blocks, nothing))

    def total(self, architecture: Architecture) -> float:
        """Of the whole network, added up in network order with the fixed part last."""
        if self.by_size:
            return self.by_size[architecture.size_index].total(architecture)
        if self.kind == "max":
            return max([self.fixed, *(float(self.blocks[s][b, c]) for s, b, c in architecture.blocks())])
        total = 0.0
        for s, b, c in architecture.blocks():
            total += float(self.blocks[s][b, c])
        return self.fixed + total

    def allows(self, architecture: Architecture) -> bool:
        return self.total(architecture) <= self.budget


@runtime_checkable
class Priced(Protocol):
    """Something that knows what networks cost: a latency table."""

    @property
    def space(self) -> Space: ...

    def cost(self, budget: float = math.inf) -> Cost: ...


def arrays(blocks: Sequence[Sequence[Sequence[float]]]) -> tuple[np.ndarray, ...]:
    """Numbers indexed [stage][block][configuration], an array for each stage."""
    return tuple(padded(stage) for stage in blocks)


def padded(rows: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
    """Rows of numbers as one array, with zeros where a row is shorter than the longest."""
    found = np.zeros((len(rows), max((len(row) for row in rows), default=0)))
    for own, row in zip(found, rows, strict=True):
        own[: len(row)] = row
    return found
