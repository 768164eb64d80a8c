"""The process that measures: a request on stdin, JSON lines on stdout. `python -m deploynas.latency.worker`

A fresh process is a fresh memory layout, and nothing else runs in it. All entries of the plan are loaded first,
then visited in random order, each evenly spread over the time, so that whatever the machine does meanwhile hits all
alike; there is one line for every visit.

The request is one line. After it stdin stays open for as long as somebody waits for the answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter

from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.attendance import end_when_abandoned
from deploynas.latency.breakdown import breakdown
from deploynas.latency.device_check import check_device
from deploynas.latency.entry import Entry, build, device_for
from deploynas.latency.facts import facts_here
from deploynas.latency.memory import peak_memory, reset_peak_memory
from deploynas.latency.model_cache import kept
from deploynas.latency.processor_cores import pin
from deploynas.latency.session import Session
from deploynas.providers import CPU
from deploynas.space import Space
from deploynas.timing import Loading


class Plan(BaseModel):
    device: dict[str, Any]
    space: dict[str, Any]
    entries: list[Entry]
    visits: dict[str, int]  # how many visits each entry still needs
    seed: int
    compare: bool = False  # what every entry computes with what the CPU provider does, where that is another


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


class CheckRequest(BaseModel):
    kind: Literal["check"] = "check"
    device: dict[str, Any]
    silence_s: float | None = None


class StoreRequest(BaseModel):
    """Keep a model on this machine. Its content follows the request, if it is asked for."""

    kind: Literal["store"] = "store"
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size_bytes: int


TRACEBACKS = "DEPLOYNAS_TRACEBACKS"  # in the environment: unexpected errors of a worker come with their traceback
ABANDONED = 75  # exit code: whoever asked is gone
Request = FactsRequest | MeasureRequest | BreakdownRequest | CheckRequest | StoreRequest
_READER: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def measure(plan: Plan) -> None:
    space = Space.from_description(plan.space)
    device = Device.from_record(plan.device)
    effort = device.effort
    if device.cores is not None:
        pin(device.cores)
    sessions, runs = {}, {}
    loading: dict[str, Loading] = {}
    left = dict(plan.visits)
    compare = plan.compare and device.provider_name != CPU
    for entry in sorted(plan.entries, key=lambda entry: not entry.alone):
        try:
            model, opened_on = build(entry, space, device, compare), device_for(entry, device)
            if entry.alone:
                session, loading[entry.key] = _load_alone(model, opened_on, entry)
            else:
                session = Session(model, opened_on, entry.shapes, entry.values)
                session.run()  # allocates, and compiles where the provider does that
            if compare:
                session.require_agreement(model, whole=entry.kind == "network")
        except DeployNASError as error:
            if not entry.optional:
                raise _of_entry(error, entry) from error
            left[entry.key] = 0
            continue
        once_ms = session.time_ms(1).took_ms[0]
        sessions[entry.key] = session
        most = entry.runs or effort.runs
        runs[entry.key] = int(min(max(most, np.ceil(effort.min_visit_ms / once_ms)), 10 * most))
    _warm_up(list(sessions.values()), device)
    for key in _order(left, {entry.key: entry.moment or entry.key for entry in plan.entries}, plan.seed):
        session = sessions[key]
        session.time_ms(warmups(effort.warmup_runs, runs[key]))
        took, waited = session.time_ms(runs[key])
        made = Visit(entry=key, samples_ms=took, waited_ms=waited if any(waited) else [])
        made.loading = loading.pop(key, None)
        _say_line(made.model_dump_json(exclude={"worker"}, exclude_defaults=True))


def _of_entry(error: DeployNASError, entry: Entry) -> DeployNASError:
    """The same error, with the name of a part or a network of ours; a file is named by the error itself."""
    if entry.kind != "file":
        error.message = f"{entry.key}: {error.message}"
    return error


def _warm_up(sessions: Sequence[Session], device: Device) -> None:
    """Until the clock of a processor that sleeps between inferences has settled."""
    wanted_s = device.record.warmup_s if device.effort.warmup_s is None else device.effort.warmup_s
    until = time.perf_counter() + wanted_s
    while sessions and time.perf_counter() < until:
        for session in sessions:
            session.run()


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
        call_ms=session.call_ms(),
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
        case CheckRequest():
            for checked in check_device(Device.from_record(request.device)):
                _say({"checked": checked.model_dump()})
        case StoreRequest():
            _say({"stored": str(kept(request.sha256, lambda: _received(request.size_bytes)))})


def _say(answer: dict[str, Any]) -> None:
    _say_line(json.dumps(answer))


def _say_line(line: str) -> None:
    print(line, file=_answers, flush=True)


_answers: TextIO | None = None  # None: stdout


def _keep_stdout_for_answers() -> None:
    """Answers go where stdout led when this process began; what anything else prints there goes to stderr."""
    global _answers
    _answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def _received(size_bytes: int) -> bytes:
    _say({"send": size_bytes})
    content = sys.stdin.buffer.read(size_bytes)
    if len(content) < size_bytes:
        os._exit(ABANDONED)
    return content


def main() -> None:
    _keep_stdout_for_answers()
    try:
        request = _READER.validate_json(sys.stdin.buffer.readline())
        if isinstance(request, MeasureRequest | BreakdownRequest | CheckRequest):
            end_when_abandoned(lambda: os._exit(ABANDONED), request.silence_s)
        serve(request)
    except DeployNASError as error:
        # whoever asked prints it as their own
        _say({"error": error.message, "hint": error.hint, "code": error.exit_code})
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os._exit(ABANDONED)  # nobody is there to report to
    except Exception as error:  # a runtime raises its own private types; whoever asked wants a sentence
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        hint = "is there room for temporary files? `TMPDIR` says where they go" if isinstance(error, OSError) else None
        _say({"error": f"the measuring process failed: {type(error).__name__}: {reason}", "hint": hint, "code": 1})
        if os.environ.get(TRACEBACKS):
            raise
        sys.exit(1)


if __name__ == "__main__":
    main()
