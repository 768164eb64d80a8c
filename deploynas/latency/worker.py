"""The process that measures: a plan on stdin, one JSON line a visit on stdout. `python -m deploynas.latency.worker`

A fresh process is a fresh memory layout, and nothing else runs in it. All entries of the plan are loaded first,
then visited in random order, each evenly spread over the time, so that whatever the machine does meanwhile hits all
alike.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from deploynas import graph
from deploynas.blocks import Part
from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.session import Session
from deploynas.space import Space


class Entry(BaseModel):
    """Something to time: a fixed part by its key, a block, a whole network, or an ONNX file."""

    key: str
    kind: Literal["part", "block", "network", "file"]
    block: tuple[int, int, int] | None = None  # stage, block, configuration
    size: int | None = None  # of the input, for parts of a space that leaves it open
    choices: list[list[int]] | None = None
    path: str | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    optional: bool = False  # left out where the provider cannot run it
    forms: graph.OperatorForms = graph.DEFAULT_FORMS  # that its operators are written in
    moment: str | None = None  # entries of one moment are visited one right after the other


class Plan(BaseModel):
    device: dict[str, Any]
    space: dict[str, Any]
    entries: list[Entry]
    visits: dict[str, int]  # how many visits each entry still needs
    seed: int


class Visit(BaseModel):
    """One line of the worker's output, and of the journal."""

    entry: str
    worker: int = 0
    samples_ms: list[float]


def build(entry: Entry, space: Space, device: Device) -> bytes | Path:
    """The graph of an entry, at the device's precision; its batch is left free, as it is in an exported file."""
    if entry.kind == "file":
        return Path(entry.path or "")
    if entry.kind == "network":
        parts = space.parts(space.architecture(entry.choices or []))
    else:
        parts = [("part", _part(entry, space if entry.size is None else space.at(entry.size)))]
    return graph.random_bytes(parts, graph.Form(None, device.precision, operators=entry.forms))


def _part(entry: Entry, space: Space) -> Part:
    if entry.block:
        return space.block(*entry.block)
    return dict(space.fixed_parts())[entry.key.removeprefix(f"{entry.size}/")]


def measure(plan: Plan) -> None:
    space = Space.from_description(plan.space)
    device = Device.from_record(plan.device)
    effort = device.effort
    sessions, runs = {}, {}
    left = dict(plan.visits)
    for entry in plan.entries:
        try:
            session = Session(build(entry, space, device), device, entry.shapes)
        except DeployNASError:
            if not entry.optional:
                raise
            left[entry.key] = 0
            continue
        session.run()  # allocates, and compiles where the provider does that
        [once_ms] = session.time_ms(1)
        sessions[entry.key] = session
        runs[entry.key] = int(min(max(effort.runs, np.ceil(effort.min_visit_ms / once_ms)), 10 * effort.runs))
    for key in _order(left, {entry.key: entry.moment or entry.key for entry in plan.entries}, plan.seed):
        session = sessions[key]
        session.time_ms(max(effort.warmup_runs, runs[key] // 4))  # brings its weights back into the caches
        samples = [round(sample, 5) for sample in session.time_ms(runs[key])]
        print(Visit(entry=key, samples_ms=samples).model_dump_json(exclude={"worker"}), flush=True)


def _order(visits: Mapping[str, int], moments: Mapping[str, str], seed: int) -> list[str]:
    """Each entry as often as it wants to be visited, spread evenly over the time and otherwise random.

    Entries of one moment share their times, and take turns in random order.
    """
    rng = np.random.default_rng(seed)
    shared: dict[tuple[str, int, int], float] = {}
    when, keys = [], []
    for key, count in visits.items():
        for k in range(count):
            time = shared.setdefault((moments[key], k, count), (k + rng.uniform()) / count)
            when.append((time, rng.uniform() if moments[key] != key else 0.0))
            keys.append(key)
    return [keys[i] for i in sorted(range(len(keys)), key=when.__getitem__)]


def main() -> None:
    try:
        measure(Plan.model_validate_json(sys.stdin.read()))
    except DeployNASError as error:
        # the parent prints it as its own
        print(json.dumps({"error": error.message, "hint": error.hint, "code": error.exit_code}), flush=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os._exit(1)  # the parent was killed: nobody is there to report to


if __name__ == "__main__":
    main()
