"""What every search space is, whatever its decisions build: decisions, the architectures they make, and their parts.

There are several kinds: stages of blocks (`structure.py`) and cells of edges (`cells.py`). A space file says which
under `kind`, and so does what generated files embed; the kinds stand in `SPACE_KINDS`. Search and accuracy see the
decisions; `graph`, `latency` and `costs` ask for parts.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deploynas.blocks import BlockConfig, Part
from deploynas.errors import InputError
from deploynas.files import content_hash, read_yaml_value
from deploynas.space.architecture import Architecture
from deploynas.space.decisions import Decisions, Depths, Group, Ragged

if TYPE_CHECKING:
    from typing_extensions import Self

PRESETS = ("fashion", "imagenet", "ofa-mbv3", "ofa-mbv3-w1.2", "ofa-proxyless", "fashion-cell", "nasbench201")
# by what files call them: where the class is
SPACE_KINDS = {
    "stages": "deploynas.space.structure:StageSpace",
    "cell": "deploynas.space.cells:CellSpace",
}
DEFAULT_SPACE_KIND = "stages"  # of files that do not say


def space_class(kind: object, where: str) -> type[Space]:
    if not isinstance(kind, str) or kind not in SPACE_KINDS:
        raise InputError(f"{where}: no kind of space `{kind}`", hint=f"one of {', '.join(SPACE_KINDS)}")
    module, name = SPACE_KINDS[kind].split(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Space(ABC):
    """A search space: `Space.load("imagenet")`, `Space.load("my-space.yaml")`. Its name does not make it another."""

    name: str = field(compare=False)
    in_channels: int
    height: int
    width: int
    classes: int

    # -- files ----------------------------------------------------------------------------------

    @classmethod
    def load(cls, source: str | Path) -> Space:
        """A preset by name, or a YAML file by path."""
        if str(source) in PRESETS:
            with resources.as_file(resources.files("deploynas.space.presets") / f"{source}.yaml") as path:
                return _from_file(path)
        if not Path(source).exists() and not str(source).endswith((".yaml", ".yml")):
            raise InputError(
                f"no search space `{source}`",
                hint=f"a preset ({', '.join(PRESETS)}) or the path of a YAML file",
            )
        return _from_file(Path(source))

    @classmethod
    @abstractmethod
    def from_yaml(cls, path: Path) -> Self:
        """From a hand-written file of this kind."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The whole space as plain data: what files record, and what `from_description` reads back.

        A field that has a default is absent while it is at it, so that a new one changes no hash of a space without it.
        """

    @classmethod
    @abstractmethod
    def from_record(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `describe`, for this kind."""

    @classmethod
    def from_description(cls, data: Mapping[str, Any]) -> Space:
        """The inverse of `describe`, so that a file which embeds its space can be read without the YAML."""
        kind = data.get("kind", DEFAULT_SPACE_KIND) if isinstance(data, Mapping) else None
        return space_class(kind, "not a description of a search space").from_record(data)

    @cached_property
    def hash(self) -> str:
        """Names the space by its content; tables and estimators of other content do not fit it."""
        return content_hash({key: value for key, value in self.describe().items() if key != "name"})

    def require_hash(self, found: str, what: str) -> None:
        """Refuse a file made for another space."""
        if found != self.hash:
            raise InputError(
                f"{what} belongs to another search space (hash {found}, space `{self.name}` has {self.hash})",
                hint="use the space it was made with, or make it again for this one",
            )

    # -- input sizes ----------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of a square input, to choose from, rising; empty: there is one."""
        return ()

    def at(self, size: int) -> Space:
        """This space with one input size instead of a choice."""
        if size not in self._at:
            known = ", ".join(str(own) for own in self.sizes) or f"{self.height}x{self.width} alone"
            raise InputError(f"space `{self.name}` has no input size {size}", hint=f"it has {known}")
        return self._at[size]

    @cached_property
    def _at(self) -> dict[int, Space]:
        if not self.sizes:
            return {self.height: self} if self.height == self.width else {}
        return {size: self._resized(size) for size in self.sizes}

    def _resized(self, size: int) -> Space:
        raise InputError(f"space `{self.name}` has one input size")

    def each_size(self) -> tuple[Space, ...]:
        """The space at every input size; itself where there is one."""
        return tuple(map(self.at, self.sizes)) if self.sizes else (self,)

    # -- what it is built of --------------------------------------------------------------------
    # of a space that leaves the input size open, all of this is at the largest; `parts` knows a network's own

    @abstractmethod
    def fixed_parts(self) -> list[tuple[str, Part]]:
        """The parts that every architecture shares."""

    @abstractmethod
    def option_parts(self, g: int, i: int, o: int) -> tuple[Part, ...]:
        """What option o of choice i of group g puts into a network: one part, several where it is repeated, or none."""

    def joint_parts(self) -> list[Part]:
        """Where several decisions make one part together: that part at its fullest."""
        return []

    @abstractmethod
    def parts(self, architecture: Architecture) -> list[tuple[str, Part]]:
        """The whole network in order, at its input size: names (`stage3/block2`, counted from 1) and geometries."""

    def block(self, g: int, i: int, o: int) -> Part:
        """The part of an option, wherever it is repeated the first of them."""
        parts = self.option_parts(g, i, o)
        if not parts:
            choice = self.decisions.groups[g].choices[i]
            raise InputError(f"`{choice.options[o].label}` of {choice.name} builds nothing")
        return parts[0]

    def config(self, g: int, o: int) -> BlockConfig:
        """The configuration of a block that an option is."""
        raise InputError(f"space `{self.name}` is not made of configured blocks")

    # -- architectures --------------------------------------------------------------------------

    @abstractmethod
    def smallest(self) -> Architecture:
        """The lightest option of every decision."""

    @abstractmethod
    def heaviest(self) -> Architecture:
        """The heaviest option of every decision (the paper's w_h)."""

    @abstractmethod
    def text(self, architecture: Architecture) -> str:
        """An architecture in the notation of this kind of space."""

    @abstractmethod
    def from_text(self, text: str) -> Architecture:
        """The inverse of `text`, and other notations that people have for such networks."""

    def architecture(self, choices: Sequence[Sequence[int]]) -> Architecture:
        """From indices of options: `choices[g][i]`; a group's depth is the length of its list.

        Where the input size is open, a last list holds its index among `sizes`.
        """
        return Architecture(self, tuple(tuple(int(c) for c in group) for group in choices))

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Every decision uniform and independent (which is not uniform over architectures)."""
        return self.architectures(self.decisions.draw(1, rng))[0]

    def size(self) -> int:
        """How many architectures there are, exactly."""
        return self.decisions.combinations()

    def enumerate(self) -> Iterator[Architecture]:
        """All architectures; for spaces small enough to want that."""
        return (Architecture(self, choices) for choices in self.decisions.enumerate())

    def require_member(self, architecture: Architecture) -> None:
        if architecture.space is not self and architecture.space != self:
            raise InputError(f"the architecture belongs to space `{architecture.space.name}`, not `{self.name}`")

    def renamed(self, name: str, classes: int) -> Self:
        """The same space for another number of classes, which is another space."""
        return replace(self, name=name, classes=classes)

    # -- decisions ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def decisions(self) -> Decisions:
        """What is decided, apart from what it builds."""

    @property
    def built_groups(self) -> tuple[Group, ...]:
        """The groups of decisions that build parts: all but the input size."""
        groups = self.decisions.groups
        return groups[:-1] if self.sizes else groups

    def rows(self, architectures: Sequence[Architecture]) -> np.ndarray:
        """One row of decisions for each architecture of this space."""
        for architecture in architectures:
            self.require_member(architecture)
        return self.decisions.rows([architecture.choices for architecture in architectures])

    def architectures(self, rows: np.ndarray) -> list[Architecture]:
        """The inverse of `rows`."""
        return [Architecture(self, self.decisions.choices_of(row)) for row in rows]

    def require_blocks(self, values: Sequence, what: str, minimum: float | None = None) -> Ragged:
        """Check an array indexed [group][choice][option]; return it as tuples of floats."""
        return self.decisions.require_options(values, what, minimum)

    def require_depths(self, values: Sequence, what: str, minimum: float | None = None) -> Depths:
        """Check an array indexed [group][depth]; return it as tuples of floats."""
        return self.decisions.require_depths(values, what, minimum)

    def encode(self, architecture: Architecture) -> tuple[np.ndarray, np.ndarray]:
        """One-hot vectors: alpha over (group, choice, option), beta over (group, depth).

        Choices beyond a group's depth take no part; their alpha rows are one-hot too, at option 0.
        """
        decisions = self.decisions
        vector = decisions.one_hot(self.rows([architecture]))[0, decisions.encoding]
        return vector[: decisions.alphas], vector[decisions.alphas :]

    def decode(self, alpha: np.ndarray, beta: np.ndarray) -> Architecture:
        """The inverse of `encode`. Rows of choices beyond the depth are not looked at."""
        alpha, beta, decisions = np.asarray(alpha, float), np.asarray(beta, float), self.decisions
        alphas, betas = decisions.alphas, len(decisions) - decisions.alphas
        if alpha.shape != (alphas,) or beta.shape != (betas,):
            raise InputError(
                f"an encoding of space `{self.name}` has shapes ({alphas},) and ({betas},), "
                f"got {alpha.shape} and {beta.shape}"
            )
        vector = np.concatenate([alpha, beta])[decisions.encoded_at]
        return self.architectures(decisions.row_of(vector)[None])[0]


def _from_file(path: Path) -> Space:
    kind = read_yaml_value(path, "kind")
    return space_class(DEFAULT_SPACE_KIND if kind is None else kind, str(path)).from_yaml(path)
