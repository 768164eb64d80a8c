"""The process that measures: a request on stdin, JSON lines on stdout. `python -m deploynas.latency.worker`

A fresh process is a fresh memory layout, and nothing else runs in it. All entries of the plan are loaded first,
then visited in random order, each evenly spread over the time, so that whatever the machine does meanwhile hits all
alike; there is one line for every visit.

The request is one line. After it stdin stays open for as long as somebody waits for the answer.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter

from deploynas import graph
from deploynas.blocks import Part
from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.breakdown import breakdown
from deploynas.latency.facts import facts_here
from deploynas.latency.memory import peak_memory, reset_peak_memory
from deploynas.latency.model_cache import kept
from deploynas.latency.session import Session
from deploynas.space import Space
from deploynas.timing import Loading


class Entry(BaseModel):
    """Something to time: a fixed part by its key, a block, a whole network, or an ONNX file."""

    key: str
    kind: Literal["part", "block", "network", "file"]
    block: tuple[int, int, int] | None = None  # stage, block, configuration
    repeat: int = 0  # which of its parts, where it has several in a network
    size: int | None = None  # of the input, for parts of a space that leaves it open
    choices: list[list[int]] | None = None
    path: str | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    values: dict[str, list[float]] = {}  # of inputs that cannot be made up
    runs: int | None = None  # timed inferences a visit; None: as the device's effort says
    alone: bool = False  # loaded before all others, and what loading takes is reported
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
    waited_ms: list[float] = []  # of each sample, while another program had the core; empty: none had, or not known
    loading: Loading | None = None  # with the first visit to an entry that was loaded `alone`


class FactsRequest(BaseModel):
    kind: Literal["facts"] = "facts"


class MeasureRequest(BaseModel):
    kind: Literal["measure"] = "measure"
    plan: Plan
    silence_s: float | None = None  # after which whoever asked is taken for gone; None: only when stdin closes


class BreakdownRequest(BaseModel):
    kind: Literal["breakdown"] = "breakdown"
    device: dict[str, Any]
    model: str  # its path on this machine
    shapes: dict[str, tuple[int, ...]]
    values: dict[str, list[float]] = {}
    silence_s: float | None = None


class StoreRequest(BaseModel):
    """Keep a model on this machine. Its content follows the request, if it is asked for."""

    kind: Literal["store"] = "store"
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size_bytes: int


ABANDONED = 75  # exit code: whoever asked is gone
Request = FactsRequest | MeasureRequest | BreakdownRequest | StoreRequest
_READER: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


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
        return space.option_parts(*entry.block)[entry.repeat]
    return dict(space.fixed_parts())[entry.key.removeprefix(f"{entry.size}/")]


def measure(plan: Plan) -> None:
    space = Space.from_description(plan.space)
    device = Device.from_record(plan.device)
    effort = device.effort
    sessions, runs = {}, {}
    loading: dict[str, Loading] = {}
    left = dict(plan.visits)
    for entry in sorted(plan.entries, key=lambda entry: not entry.alone):
        try:
            model = build(entry, space, device)
            if entry.alone:
                session, loading[entry.key] = _load_alone(model, device, entry)
            else:
                session = Session(model, device, entry.shapes, entry.values)
                session.run()  # allocates, and compiles where the provider does that
        except DeployNASError:
            if not entry.optional:
                raise
            left[entry.key] = 0
            continue
        once_ms = session.time_ms(1).took_ms[0]
        sessions[entry.key] = session
        most = entry.runs or effort.runs
        runs[entry.key] = int(min(max(most, np.ceil(effort.min_visit_ms / once_ms)), 10 * most))
    for key in _order(left, {entry.key: entry.moment or entry.key for entry in plan.entries}, plan.seed):
        session = sessions[key]
        session.time_ms(warmups(effort.warmup_runs, runs[key]))
        took, waited = session.time_ms(runs[key])
        made = Visit(entry=key, samples_ms=took, waited_ms=waited if any(waited) else [])
        made.loading = loading.pop(key, None)
        print(made.model_dump_json(exclude={"worker"}, exclude_defaults=True), flush=True)


def warmups(least: int, runs: int) -> int:
    """Inferences that are not timed before those of a visit: they bring the weights back into the caches."""
    return max(least, runs // 4)


def _load_alone(model: bytes | Path, device: Device, entry: Entry) -> tuple[Session, Loading]:
    import onnxruntime  # noqa: F401  # once a process, and not for this model

    before = reset_peak_memory()
    start = time.perf_counter()
    session = Session(model, device, entry.shapes, entry.values)
    loaded = time.perf_counter()
    session.run()
    first = time.perf_counter()
    peak = peak_memory()
    return session, Loading(
        load_ms=1000 * (loaded - start),
        first_ms=1000 * (first - loaded),
        peak_memory_bytes=peak,
        model_memory_bytes=max(0, peak - before),
    )


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


def serve(request: Request) -> None:
    match request:
        case FactsRequest():
            _say({"facts": facts_here().model_dump()})
        case MeasureRequest(plan=plan):
            measure(plan)
        case BreakdownRequest():
            shares = breakdown(Path(request.model), Device.from_record(request.device), request.shapes, request.values)
            _say({"breakdown": [share.model_dump() for share in shares]})
        case StoreRequest():
            _say({"stored": str(kept(request.sha256, lambda: _received(request.size_bytes)))})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _received(size_bytes: int) -> bytes:
    _say({"send": size_bytes})
    content = sys.stdin.buffer.read(size_bytes)
    if len(content) < size_bytes:
        os._exit(ABANDONED)
    return content


def _end_with_stdin(silence_s: float | None) -> None:
    """Whoever asked has closed it, was killed or cannot reach us: nobody waits, and others may want the machine."""
    # not of the buffered stdin, whose lock a process cannot end with; `select` takes pipes on POSIX systems only
    while (silence_s is None or select.select([0], [], [], silence_s)[0]) and os.read(0, 4096):
        pass
    os._exit(ABANDONED)


def main() -> None:
    try:
        request = _READER.validate_json(sys.stdin.buffer.readline())
        if isinstance(request, MeasureRequest | BreakdownRequest):
            # waiting in a system call, it takes no time from what is measured
            threading.Thread(target=_end_with_stdin, args=(request.silence_s,), daemon=True).start()
        serve(request)
    except DeployNASError as error:
        # whoever asked prints it as their own
        _say({"error": error.message, "hint": error.hint, "code": error.exit_code})
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os._exit(ABANDONED)  # nobody is there to report to


if __name__ == "__main__":
    main()
