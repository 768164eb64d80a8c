"""Where prefixes of networks came from: the way back from any entry of the last list to the empty network.

Lists of up to a million prefixes stand behind each other, one for every block. Of those that came before nobody asks
for costs and values any more, so they are not kept, and what is kept takes as few bytes as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.space.decisions import Choices


@dataclass(frozen=True)
class Trail:
    """Of every entry of one list, the entry before it."""

    parents: tuple[Trail, ...] = ()
    source: np.ndarray | None = None  # which of the parents; None: there is one
    index: np.ndarray | None = None  # which entry of that parent
    config: np.ndarray | None = None  # the configuration that was added; None: a stage ended

    @classmethod
    def extended(cls, parent: Trail, entries: int, index: np.ndarray, config: np.ndarray) -> Trail:
        """By a block: of the parent's `entries` those at `index`, each with a configuration."""
        return cls((parent,), None, _short(index, entries), _short(config, int(config.max(initial=0))))

    @classmethod
    def merged(cls, parents: Sequence[tuple[Trail, int]], kept: np.ndarray) -> Trail:
        """At the end of a stage: of all parents' entries, one list after the other, those at `kept`."""
        lengths = [length for _, length in parents]
        starts = np.cumsum([0, *lengths])
        source = np.searchsorted(starts, kept, side="right") - 1
        index = _short(kept - starts[source], max(lengths))
        return cls(tuple(trail for trail, _ in parents), _short(source, len(parents)), index)

    def choices(self, i: int) -> Choices:
        """Walk back from entry i to the empty network."""
        trail, stages = self, list[list[int]]()
        while trail.index is not None:
            if trail.config is None:
                stages.append([])
            else:
                stages[-1].append(int(trail.config[i]))
            source = 0 if trail.source is None else trail.source[i]
            i, trail = int(trail.index[i]), trail.parents[source]
        return tuple(tuple(reversed(stage)) for stage in reversed(stages))


EMPTY = Trail()  # of the list that holds nothing but the empty network


def _short(positions: np.ndarray, most: int) -> np.ndarray:
    """The same numbers, none of which exceeds `most`, in as few bytes as hold them."""
    return positions.astype(np.min_scalar_type(most))
