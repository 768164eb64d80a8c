"""What there is to time: whole networks, and the parts of a space, identical geometries once."""

from __future__ import annotations

import numpy as np

from deploynas.blocks import Part
from deploynas.graph import DEFAULT_FORMS, OperatorForms
from deploynas.latency.entry import Entry
from deploynas.space import Architecture, Space

REFERENCES = 16
REFERENCE_SPACE = "imagenet"  # for models that come without a space of ours


def network_entry(key: str, architecture: Architecture, forms: OperatorForms = DEFAULT_FORMS) -> Entry:
    return Entry(key=key, kind="network", choices=[list(stage) for stage in architecture.choices], forms=forms)


def part_entries(space: Space) -> dict[Part, Entry]:
    """Fixed parts, and every distinct geometry of an option once, named after the first option that has it.

    Where the input size is open, of every size; names then begin with it.
    """
    entries: dict[Part, Entry] = {}
    for at_size in space.each_size():
        size = at_size.height if space.sizes else None
        prefix = "" if size is None else f"{size}/"
        for name, part in at_size.fixed_parts():
            entries.setdefault(part, Entry(key=prefix + name, kind="part", size=size))
        for g, group in enumerate(at_size.built_groups):
            for i, choice in enumerate(group.choices):
                for o, option in enumerate(choice.options):
                    for p, part in enumerate(at_size.option_parts(g, i, o)):
                        key = f"{prefix}{choice.name}/{option.label}" + (f"/{p + 1}" if p else "")
                        entry = Entry(key=key, kind="block", block=(g, i, o), repeat=p, size=size)
                        entries.setdefault(part, entry)
    return entries


def reference_entries(space: Space) -> list[Entry]:
    """Blocks from all over the space, timed beside whole models to tell the machine's speed by."""
    blocks = [entry for entry in part_entries(space).values() if entry.block]
    spread = np.linspace(0, len(blocks) - 1, min(REFERENCES, len(blocks))).astype(int)
    return [blocks[i].model_copy(update={"key": f"reference/{blocks[i].key}", "optional": True}) for i in spread]
