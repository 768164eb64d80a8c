"""How many models are loaded at once: as many as there is memory for, on the host and on an accelerator of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.costs import combine, part_costs
from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.entry import Entry, parts_of
from deploynas.space import Space

HOST_SHARE = 0.25  # of the free memory: others use it too
ACCELERATOR_SHARE = 0.7  # kernels of vendors take some for work of their own
# a loaded network holds its weights up to three times: file, initialisers, packed for the kernels
WEIGHT_COPIES = 3
# of a session whatever it runs: plans, handles, arenas that have begun
SESSION_BYTES = {"host": 1 << 20, "accelerator": 24 << 20}


@dataclass(frozen=True)
class Room:
    """Free bytes; of an accelerator, None where there is none or it does not say."""

    host: int
    accelerator: int | None = None


@dataclass(frozen=True)
class Need:
    """Bytes that loaded entries take together."""

    host: int = 0
    accelerator: int = 0

    def __add__(self, other: Need) -> Need:
        return Need(self.host + other.host, self.accelerator + other.accelerator)


def need_of(entry: Entry, space: Space, device: Device) -> Need:
    """Weights and, for every session an arena of its own, the most activations alive at once, for the whole batch."""
    costs = combine(*(part_costs(part) for _, part in parts_of(entry, space)))
    activations = device.batch * costs.peak_memory_bytes
    if not device.record.accelerator:
        return Need(WEIGHT_COPIES * costs.size_bytes + activations + SESSION_BYTES["host"])
    # weights once there, and while they are loaded once here
    return Need(costs.size_bytes + SESSION_BYTES["host"], costs.size_bytes + activations + SESSION_BYTES["accelerator"])


def loading_groups(
    entries: Sequence[Entry], space: Space, device: Device, room: Room, rng: np.random.Generator
) -> list[list[Entry]]:
    """All entries at once, or as many random groups as it takes; entries of one moment stay together."""
    needs = {entry.key: need_of(entry, space, device) for entry in entries}
    if _fits(sum(needs.values(), Need()), room):
        return [list(entries)]
    moments: dict[str, list[Entry]] = {}
    for entry in entries:
        moments.setdefault(entry.moment or entry.key, []).append(entry)
    groups: list[list[Entry]] = []
    taken = Need()
    for i in rng.permutation(len(moments)):
        together = list(moments.values())[i]
        need = sum((needs[entry.key] for entry in together), Need())
        if not _fits(need, room):
            wanted = need.accelerator or need.host
            raise DeployNASError(
                f"`{together[0].key}` needs {wanted:,} bytes at batch {device.batch}, more than there is room for",
                hint="a smaller `batch`, or close what else uses the memory",
            )
        if not groups or not _fits(taken + need, room):
            groups.append([])
            taken = Need()
        groups[-1] += together
        taken += need
    return groups


def _fits(need: Need, room: Room) -> bool:
    accelerator = room.accelerator is None or need.accelerator <= ACCELERATOR_SHARE * room.accelerator
    return need.host <= HOST_SHARE * room.host and accelerator
