"""Networks that nobody searched for, to compare a found one with: uniform ones, and random ones of its latency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.latency.table import LatencyTable
from deploynas.space import Architecture, Group, Option, Space

CLOSE = 0.03  # predicted latencies that differ by less are the same
DRAWN_AT_ONCE = 4000
MOST_DRAWN = 400_000  # a second or two; at the ends of a space hardly any random network has the latency


def uniform_networks(space: Space) -> list[Architecture]:
    """Every block of every stage with the same configuration, and every stage at the same step of its depths.

    A stage that lacks a configuration takes its nearest one; a stage with fewer depths stops at its last. Where the
    input size is open, at every size.
    """
    groups = space.built_groups
    options = dict.fromkeys(option for group in groups for choice in group.choices for option in choice.options)
    steps = max(len(group.depths) for group in groups)
    found = dict.fromkeys(
        tuple(_uniform(group, option, min(step, len(group.depths) - 1)) for group in groups)
        for option in options
        for step in range(steps)
    )
    sizes = [[(i,)] for i in range(len(space.sizes))] or [[]]
    return [space.architecture([*choices, *size]) for size in sizes for choices in found]


def random_networks(
    table: LatencyTable, like: Architecture, count: int, rng: np.random.Generator
) -> list[Architecture]:
    """Distinct random networks that the table predicts at the latency of `like`; the nearest ones if there are too few.

    Every decision is drawn uniformly; what does not have the latency is thrown away.
    """
    space, wanted_ms = table.space, table.predict(like)
    decisions = space.decisions
    close = dict.fromkeys([like.choices])
    nearest: dict[tuple, float] = {}
    for _ in range(MOST_DRAWN // DRAWN_AT_ONCE):
        rows = decisions.draw(DRAWN_AT_ONCE, rng)
        off = np.abs(table.predict_rows(rows) / wanted_ms - 1)
        close |= dict.fromkeys(decisions.choices_of(row) for row in rows[off < CLOSE])
        if len(close) > count:
            return [space.architecture(choices) for choices in list(close)[1 : count + 1]]
        _, first = np.unique(decisions.canonical(rows), axis=0, return_index=True)
        for i in first[np.argsort(off[first])][: count + 1]:
            nearest[decisions.choices_of(rows[i])] = float(off[i])
    nearest.pop(like.choices, None)
    return [space.architecture(choices) for choices in sorted(nearest, key=nearest.__getitem__)[:count]]


def _uniform(group: Group, option: Option, depth_index: int) -> tuple[int, ...]:
    return tuple(_nearest(choice.options, option) for choice in group.choices[: group.depths[depth_index]])


def _nearest(options: Sequence[Option], wanted: Option) -> int:
    """The option that differs in the fewest factors, and in those the least."""

    def distance(option: Option) -> tuple[bool, int, float]:
        other, own = dict(wanted.factors), dict(option.factors)
        gaps = [abs(other.get(name, 0.0) - own.get(name, 0.0)) for name in {**other, **own}]
        return option.kind != wanted.kind, sum(gap > 0 for gap in gaps), sum(gaps)

    return min(range(len(options)), key=lambda o: distance(options[o]))
