"""One network of a space: which option every decision takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deploynas.blocks import BlockConfig
from deploynas.space.decisions import Choices

if TYPE_CHECKING:
    from deploynas.space.space import Space


@dataclass(frozen=True)
class Architecture:
    """One network of a space. `str()` is the notation of its kind of space; `Architecture.parse` reads it back."""

    space: Space
    choices: Choices  # choices[g][i]: index of an option; behind them the input size, if it is open

    def __post_init__(self) -> None:
        self.space.decisions.require_choices(self.choices)

    def __hash__(self) -> int:
        return hash(self.choices)  # the space's own hash is costly, and rarely tells two apart

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Architecture) or self.choices != other.choices:
            return False
        return self.space is other.space or self.space == other.space

    def __str__(self) -> str:
        return self.space.text(self)

    def __repr__(self) -> str:
        return f"Architecture({self.space.name}: {self})"

    @classmethod
    def parse(cls, text: str, space: Space) -> Architecture:
        """Read the notation of the space (what `str()` writes, for stages timm's nested lists and Once-for-all's JSON
        too), or choices.
        """
        from deploynas.space.written_forms import read

        return read(text, space)

    @property
    def stages(self) -> Choices:
        """The choices of what is built, without that of the input size."""
        return self.choices[:-1] if self.space.sizes else self.choices

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(len(choice) for choice in self.stages)

    @property
    def size_index(self) -> int:
        """Which of the space's input sizes it takes; 0 where there is one."""
        return self.choices[-1][0] if self.space.sizes else 0

    @cached_property
    def at_its_size(self) -> Architecture:
        """The same network in the space of its input size alone: what it builds depends on that."""
        space = self.space
        return Architecture(space.at(space.sizes[self.size_index]), self.stages) if space.sizes else self

    def config(self, s: int, b: int) -> BlockConfig:
        return self.space.config(s, self.choices[s][b])

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """(group, choice, option) of every choice that takes part, in network order: of stages, their blocks."""
        return ((s, b, c) for s, stage in enumerate(self.stages) for b, c in enumerate(stage))


def part_name(s: int, b: int) -> str:
    """Names count from 1, as people do; indices count from 0."""
    return f"stage{s + 1}/block{b + 1}"
