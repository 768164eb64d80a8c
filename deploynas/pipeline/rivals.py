"""Networks that nobody searched for, to compare a found one with: uniform ones, and random ones of its latency."""

from __future__ import annotations

import numpy as np

from deploynas.blocks import BlockConfig
from deploynas.latency.table import LatencyTable
from deploynas.space import Architecture, Space
from deploynas.space.structure import Stage

CLOSE = 0.03  # predicted latencies that differ by less are the same
DRAWN_AT_ONCE = 4000
MOST_DRAWN = 400_000  # a second or two; at the ends of a space hardly any random network has the latency


def uniform_networks(space: Space) -> list[Architecture]:
    """Every block of every stage with the same configuration, and every stage at the same step of its depths.

    A stage that lacks a configuration takes its nearest one; a stage with fewer depths stops at its last. Where the
    input size is open, at every size.
    """
    configs = dict.fromkeys(config for stage in space.stages for config in stage.configs)
    steps = max(len(stage.depths) for stage in space.stages)
    found = dict.fromkeys(
        tuple((_nearest(stage, config),) * stage.depths[min(step, len(stage.depths) - 1)] for stage in space.stages)
        for config in configs
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


def _nearest(stage: Stage, config: BlockConfig) -> int:
    """The stage's configuration that differs in the fewest factors, and in those the least."""

    def distance(other: BlockConfig) -> tuple[bool, int, float]:
        wanted, own = config.factors(), other.factors()
        gaps = [abs(wanted.get(name, 0.0) - own.get(name, 0.0)) for name in {**wanted, **own}]
        return other.code != config.code, sum(gap > 0 for gap in gaps), sum(gaps)

    return min(range(len(stage.configs)), key=lambda c: distance(stage.configs[c]))
