"""Something to time, and the graph that is loaded for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel

from deploynas import graph
from deploynas.blocks import Part
from deploynas.device import Device
from deploynas.latency.every_value import ranges_of_one
from deploynas.providers import Precision
from deploynas.space import Space


class Entry(BaseModel):
    """Something to time: a fixed part by its key, a block, a whole network, or an ONNX file."""

    key: str
    kind: Literal["part", "block", "network", "file"]
    block: tuple[int, int, int] | None = None  # stage, block, configuration
    repeat: int = 0  # which of its parts, where it has several in a network
    size: int | None = None  # of the input, for parts of a space that leaves it open
    choices: list[list[int]] | None = None
    path: str | None = None
    precision: Precision | None = None  # that its session is opened in; None: the device's
    shapes: dict[str, tuple[int, ...]] = {}
    values: dict[str, list[float]] = {}  # of inputs that cannot be made up
    runs: int | None = None  # timed inferences a visit; None: as the device's effort says
    alone: bool = False  # loaded before all others, and what loading takes is reported
    optional: bool = False  # left out where the provider cannot run it
    forms: graph.OperatorForms = graph.DEFAULT_FORMS  # that its operators are written in
    moment: str | None = None  # entries of one moment are visited one right after the other


def device_for(entry: Entry, device: Device) -> Device:
    """That its session is opened on."""
    return device if entry.precision is None else device.model_copy(update={"precision": entry.precision})


def build(entry: Entry, space: Space, device: Device, compared: bool = False) -> bytes | Path:
    """The graph of an entry, at the device's precision; its batch is left free, as it is in an exported file.

    Ranges of 8-bit values do not matter to a latency; outputs that are `compared` need ranges that values fill.
    """
    if entry.kind == "file":
        return Path(entry.path or "")
    parts, ranges = parts_of(entry, space), None
    if compared and device.precision == "int8":
        first = parts[0][1]
        x = np.random.default_rng(0).standard_normal((1, first.in_channels, first.height, first.width))
        ranges = ranges_of_one(graph.chain(parts, None, graph.Form(None)), x.astype(np.float32))
    form = graph.Form(None, device.precision, ranges=ranges, operators=entry.forms, quantization=device.quantized)
    return graph.random_bytes(parts, form)


def parts_of(entry: Entry, space: Space) -> list[tuple[str, Part]]:
    """What an entry of a space is made of."""
    if entry.kind == "network":
        return list(space.parts(space.architecture(entry.choices or [])))
    own = space if entry.size is None else space.at(entry.size)
    if entry.block:
        return [("part", own.option_parts(*entry.block)[entry.repeat])]
    return [("part", dict(own.fixed_parts())[entry.key.removeprefix(f"{entry.size}/")])]
