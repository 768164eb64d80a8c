"""Times ONNX files on one device, and says where their time goes and which is faster."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

from deploynas.device import Device, RecordedDevice
from deploynas.errors import InputError
from deploynas.files import now
from deploynas.latency.breakdown import Share, scaled
from deploynas.latency.entry import Entry
from deploynas.latency.facts import Facts
from deploynas.latency.file_timing import TimedFile, time_files
from deploynas.latency.inputs import Shapes, Values
from deploynas.latency.measured_on import MeasuredOn
from deploynas.latency.ratio import Ratio, ratio_of
from deploynas.latency.statistic import relative_error, summarise
from deploynas.latency.table import Measurement
from deploynas.latency.target import Target, target_of
from deploynas.progress import OnProgress, silent
from deploynas.providers import CPU, Precision
from deploynas.recorded import NotNegative, Positive
from deploynas.timing import Timing

if TYPE_CHECKING:
    from typing_extensions import Self

PERCENTILES = (5, 50, 90, 95, 99)


class BenchResult(BaseModel):
    schema_: Literal["deploynas/bench"] = Field(default="deploynas/bench", alias="schema")
    schema_version: int = 1
    model: str
    model_sha256: str
    device: RecordedDevice
    device_hash: str
    timing: Timing | None = None  # None in files of earlier versions
    measurement: Measurement  # the samples; its latency is what the device file's tables are made of
    processes: list[int] = []  # which one made each visit of the measurement
    percentiles_ms: dict[str, Positive]
    mean_ms: Positive
    throughput_per_s: Positive  # inputs, not batches, from the mean; in files of earlier versions from the median
    breakdown: list[Share]
    profiler_slowdown: NotNegative | None = None  # by what factor the runtime's profiler made it slower
    inputs: dict[str, Any] = {}  # shapes and values that were given
    provenance: MeasuredOn

    @model_validator(mode="after")
    def _every_visit_has_its_process(self) -> Self:
        visits = len(self.measurement.samples_ms)
        if self.processes and len(self.processes) != visits:
            raise ValueError(f"have as many `processes` as visits: {visits}, not {len(self.processes)}")
        return self


@dataclass(frozen=True)
class Case:
    """A file, with the shapes and values of its inputs that cannot be made up."""

    model: Path
    shapes: Shapes = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    precision: Precision | None = None  # that its session is opened in; None: the device's

    def name(self, whole_path: bool = False) -> str:
        given = [f"{name}={','.join(map(str, shape))}" for name, shape in self.shapes.items()]
        opened_in = [self.precision] if self.precision else []
        return " ".join([self.model.as_posix() if whole_path else self.model.name, *opened_in, *given])

    def entry(self, key: str) -> Entry:
        values = {name: list(numbers) for name, numbers in self.values.items()}
        path, shapes = str(self.model.resolve()), dict(self.shapes)
        return Entry(key=key, kind="file", path=path, shapes=shapes, values=values, precision=self.precision)


@dataclass(frozen=True)
class Benched:
    """Files that were timed together: each of them, and all but the first against the first."""

    results: tuple[BenchResult, ...]
    ratios: tuple[Ratio, ...]


def bench(
    model: str | Path,
    device: Device,
    *,
    shapes: Shapes | None = None,
    values: Values | None = None,
    runs: int = 300,
    on_progress: OnProgress = silent,
) -> BenchResult:
    """Time an ONNX file: `runs` inferences or more, over fresh processes."""
    case = Case(Path(model), shapes or {}, values or {})
    return bench_together([case], device, runs=runs, on_progress=on_progress).results[0]


def bench_together(
    cases: Sequence[Case], device: Device, *, runs: int = 300, on_progress: OnProgress = silent
) -> Benched:
    """Time files interleaved, so that whatever the machine does meanwhile happens to all of them."""
    contents = [_read_model(case.model) for case in cases]
    target = target_of(device)
    before = target.facts()
    entries = [case.entry(f"file/{i}") for i, case in enumerate(cases)]
    timed = time_files(entries, device, runs, on_progress=on_progress)
    after = target.facts()
    names = _names(cases)
    results = tuple(
        _result(case, name, content, one, target, before, after)
        for case, name, content, one in zip(cases, names, contents, timed, strict=True)
    )
    ratios = [ratio_of(names[0], name, timed[0], one) for name, one in zip(names, timed, strict=True)]
    return Benched(results, tuple(ratios[1:]))


def _names(cases: Sequence[Case]) -> list[str]:
    """Without folders, unless that would give two of them one name."""
    short = [case.name() for case in cases]
    return short if len(set(short)) == len(cases) else [case.name(whole_path=True) for case in cases]


def _result(
    case: Case, name: str, content: bytes, timed: TimedFile, target: Target, before: Facts, after: Facts
) -> BenchResult:
    timing = timed.timing
    if case.precision:
        target = target_of(target.device.model_copy(update={"precision": case.precision}))
    device = target.device
    samples = np.concatenate(timed.measurement.samples_ms)
    breakdown, slowdown = _breakdown(case, target, timing)
    return BenchResult(
        model=case.model.name,
        model_sha256=hashlib.sha256(content).hexdigest(),
        device=device,
        device_hash=device.hash,
        timing=timing,
        measurement=_as_tables_are_made(timed.measurement, device).model_copy(update={"name": name}),
        processes=list(timed.processes),
        percentiles_ms={f"p{p}": float(np.percentile(samples, p)) for p in PERCENTILES},
        mean_ms=timing.clock.mean_ms,
        throughput_per_s=1000 * device.batch / timing.clock.mean_ms,
        breakdown=breakdown,
        profiler_slowdown=slowdown,
        inputs={"shapes": dict(case.shapes), "values": dict(case.values)},
        provenance={
            "date": now(),
            **before.told(device),
            **before.provenance_until(after),
        },
    )


def _breakdown(case: Case, target: Target, timing: Timing) -> tuple[list[Share], float | None]:
    """Where the time goes; nothing where the profiler sees launches, or one fused node for the whole graph."""
    if target.device.provider_name != CPU:
        return [], None
    return scaled(target.breakdown(case.model.resolve(), case.shapes, case.values), timing.undisturbed.latency_ms)


def _as_tables_are_made(measured: Measurement, device: Device) -> Measurement:
    """Of a device that keeps disturbances in, the latency is its statistic of the raw samples."""
    if device.undisturbed:
        return measured
    error = relative_error(measured.samples_ms, device.statistic)
    return measured.model_copy(
        update={
            "latency_ms": summarise(np.concatenate(measured.samples_ms), device.statistic),
            "relative_error": error,
            "stable": error <= device.effort.max_relative_error,
            "waited_ms": [],
            "slowdown": [1.0] * len(measured.samples_ms),
        }
    )


def _read_model(path: Path) -> bytes:
    """Fail on what is not an ONNX model before any process is started for it."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        parsed = onnx.load_model_from_string(content)
    except DecodeError:
        parsed = onnx.ModelProto()
    if not parsed.graph.node:
        raise InputError(f"{path}: not an ONNX model")
    return content
