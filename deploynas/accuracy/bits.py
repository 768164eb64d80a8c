"""The decisions of a network as bits in {-1, 1} (CoNAS, section 2): one for every option, 1 where a network takes it.

An option that is not taken is -1, and so is every option of a choice that does not count, such as those of a block
beyond the depth: a bit says that something is there. Where no network could tell two bits apart there is only one of
them: an option that is always taken has none, and of two options of which every network takes one, the second alone
has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deploynas.space import Decisions


@dataclass(frozen=True)
class Bits:
    """Which option every bit stands for: its entry in a vector of decisions."""

    decisions: Decisions
    entries: tuple[int, ...]

    @classmethod
    def of(cls, decisions: Decisions) -> Bits:
        entries: list[int] = []
        for column, where in enumerate(decisions.slices):
            own = range(where.start, where.stop)
            if len(own) > 2 or (len(own) == 2 and not _always_counts(decisions, column)):
                entries += own
            elif len(own) == 2:
                entries.append(own[1])
        return cls(decisions, tuple(entries))

    def __len__(self) -> int:
        return len(self.entries)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(networks, bits) of rows of decisions."""
        return (2 * self.decisions.active(rows)[:, list(self.entries)] - 1).astype(np.int8)

    @cached_property
    def columns(self) -> np.ndarray:
        """Of every bit, the decision that it belongs to. At most one bit of a decision is 1."""
        return np.repeat(np.arange(self.decisions.columns), self.decisions.sizes)[list(self.entries)]

    @cached_property
    def options(self) -> np.ndarray:
        """Of every bit, its option's number among those of its decision."""
        return np.array(self.entries) - self.decisions.starts[self.columns]


def _always_counts(decisions: Decisions, column: int) -> bool:
    choice = column - len(decisions.groups)
    return choice < 0 or decisions.home[choice] == 0
