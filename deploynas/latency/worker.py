"""The process that measures: a plan on stdin, one JSON line a visit on stdout. `python -m deploynas.latency.worker`

A fresh process is a fresh memory layout, and nothing else runs in it. All entries of the plan are loaded first,
then visited in a new random order each time round, so that whatever the machine does meanwhile hits all alike.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from deploynas import graph
from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.session import Session
from deploynas.space import Space


class Entry(BaseModel):
    """Something to time: a fixed part by its key, a block, a whole network, or an ONNX file."""

    key: str
    kind: Literal["part", "block", "network", "file"]
    block: tuple[int, int, int] | None = None  # stage, block, configuration
    choices: list[list[int]] | None = None
    path: str | None = None
    shapes: dict[str, tuple[int, ...]] = {}


class Plan(BaseModel):
    device: dict[str, Any]
    space: dict[str, Any] | None  # None: files only
    entries: list[Entry]
    visits: dict[str, int]  # how many visits each entry still needs
    seed: int


class Visit(BaseModel):
    """One line of the worker's output, and of the journal."""

    entry: str
    worker: int = 0
    samples_ms: list[float]


def build(entry: Entry, space: Space | None, device: Device) -> bytes | Path:
    """The graph of an entry, at the device's batch and precision."""
    if entry.kind == "file":
        return Path(entry.path or "")
    assert space is not None
    how: dict[str, Any] = {"batch": device.batch, "precision": device.precision}
    if entry.kind == "network":
        model = graph.network(space, space.architecture(entry.choices or []), **how)
    elif entry.block:
        model = graph.block(space, *entry.block, **how)
    else:
        model = graph.part(dict(space.fixed_parts())[entry.key], **how)
    return model.SerializeToString()


def measure(plan: Plan) -> None:
    space = Space.from_description(plan.space) if plan.space else None
    device = Device.model_validate(plan.device)
    effort = device.effort
    sessions, runs = {}, {}
    for entry in plan.entries:
        session = Session(build(entry, space, device), device, entry.shapes)
        session.run()  # allocates, and compiles where the provider does that
        fastest = min(session.time_ms(2))
        sessions[entry.key] = session
        runs[entry.key] = int(min(max(effort.runs, np.ceil(effort.min_visit_ms / fastest)), 10 * effort.runs))
    rng = np.random.default_rng(plan.seed)
    left = dict(plan.visits)
    while any(left.values()):
        keys = [key for key, visits in left.items() if visits]
        for key in rng.permutation(keys):
            session = sessions[key]
            session.time_ms(effort.warmup_runs)  # brings its weights back into the caches
            samples = [round(sample, 5) for sample in session.time_ms(runs[key])]
            print(Visit(entry=key, samples_ms=samples).model_dump_json(exclude={"worker"}), flush=True)
            left[key] -= 1


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
