"""What there is to time: whole networks, and the parts of a space, identical geometries once."""

from __future__ import annotations

import numpy as np

from deploynas.blocks import Part
from deploynas.latency.worker import Entry
from deploynas.space import Architecture, Space, part_name

REFERENCES = 16
REFERENCE_SPACE = "imagenet"  # for models that come without a space of ours


def network_entry(key: str, architecture: Architecture) -> Entry:
    return Entry(key=key, kind="network", choices=[list(stage) for stage in architecture.choices])


def part_entries(space: Space) -> list[Entry]:
    """Fixed parts, and every distinct block geometry once, named after the first block that has it."""
    entries = [Entry(key=name, kind="part") for name, _ in space.fixed_parts()]
    entries += [Entry(key=key, kind="block", block=place) for key, place in first_places(space).values()]
    return entries


def first_places(space: Space) -> dict[Part, tuple[str, tuple[int, int, int]]]:
    places: dict[Part, tuple[str, tuple[int, int, int]]] = {}
    for s, stage in enumerate(space.stages):
        for b in range(stage.max_depth):
            for c, config in enumerate(stage.configs):
                places.setdefault(space.block(s, b, c), (f"{part_name(s, b)}/{config}", (s, b, c)))
    return places


def reference_entries(space: Space) -> list[Entry]:
    """Blocks from all over the space, timed beside whole models to tell the machine's speed by."""
    blocks = [entry for entry in part_entries(space) if entry.block]
    spread = np.linspace(0, len(blocks) - 1, min(REFERENCES, len(blocks))).astype(int)
    return [blocks[i].model_copy(update={"key": f"reference/{blocks[i].key}", "optional": True}) for i in spread]
