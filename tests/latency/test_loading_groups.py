"""How many models are loaded at once, with memory that the test makes up."""

from __future__ import annotations

import numpy as np
import pytest

from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.entries import network_entry, part_entries
from deploynas.latency.entry import Entry
from deploynas.latency.loading_groups import ACCELERATOR_SHARE, HOST_SHARE, Need, Room, loading_groups, need_of
from deploynas.space import Space

GIB = 1 << 30
CPU, CUDA = Device(name="a", provider="cpu"), Device(name="b", provider="cuda", batch=64)


@pytest.fixture(scope="module")
def imagenet() -> Space:
    return Space.load("imagenet")


@pytest.fixture(scope="module")
def entries(imagenet: Space) -> list[Entry]:
    rng = np.random.default_rng(0)
    return [*part_entries(imagenet).values(), *(network_entry(f"n/{i}", imagenet.sample(rng)) for i in range(50))]


def together(entries: list[Entry], space: Space, device: Device) -> Need:
    return sum((need_of(entry, space, device) for entry in entries), Need())


def test_a_batch_of_64_does_not_fit_a_gpu_at_once(imagenet: Space, entries: list[Entry]) -> None:
    """Every session has an arena of its own, which holds the activations of its batch."""
    assert together(entries, imagenet, CUDA).accelerator > 10 * GIB
    room = Room(host=64 * GIB, accelerator=8 * GIB)
    groups = loading_groups(entries, imagenet, CUDA, room, np.random.default_rng(0))
    assert len(groups) > 1
    assert sorted(entry.key for group in groups for entry in group) == sorted(entry.key for entry in entries)
    for group in groups:
        need = together(group, imagenet, CUDA)
        assert need.accelerator <= ACCELERATOR_SHARE * room.accelerator and need.host <= HOST_SHARE * room.host


def test_activations_grow_with_the_batch_and_weights_do_not(imagenet: Space, entries: list[Entry]) -> None:
    one, two, three = (need_of(entries[0], imagenet, CUDA.model_copy(update={"batch": b})) for b in (1, 2, 3))
    assert three.accelerator - two.accelerator == two.accelerator - one.accelerator > 0
    assert one.host == three.host


def test_all_at_once_where_there_is_room(imagenet: Space, entries: list[Entry]) -> None:
    rng = np.random.default_rng(0)
    assert loading_groups(entries, imagenet, CPU, Room(host=64 * GIB), rng) == [entries]


def test_entries_of_one_moment_stay_together(imagenet: Space) -> None:
    rng = np.random.default_rng(0)
    networks = [
        network_entry(f"m{i}/{j}", imagenet.sample(rng)).model_copy(update={"moment": f"m{i}"})
        for i in range(6)
        for j in range(3)
    ]
    need = together(networks[:3], imagenet, CPU)
    room = Room(host=int(1.5 * need.host / HOST_SHARE))
    groups = loading_groups(networks, imagenet, CPU, room, rng)
    assert len(groups) > 1
    places = {entry.key: g for g, group in enumerate(groups) for entry in group}
    assert all(len({places[f"m{i}/{j}"] for j in range(3)}) == 1 for i in range(6))


def test_what_does_not_fit_alone_is_an_error_that_says_so(imagenet: Space, entries: list[Entry]) -> None:
    with pytest.raises(DeployNASError, match="more than there is room for") as raised:
        loading_groups(entries, imagenet, CUDA, Room(64 * GIB, 1 << 20), np.random.default_rng(0))
    assert "batch" in (raised.value.hint or "")
