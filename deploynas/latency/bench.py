"""Times one ONNX file on one device, in fresh processes, and says where its time goes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import now
from deploynas.latency.breakdown import Share
from deploynas.latency.measure import measure_entries
from deploynas.latency.session import Shapes
from deploynas.latency.table import Measurement
from deploynas.latency.target import target_of
from deploynas.latency.worker import Entry
from deploynas.progress import OnProgress, silent
from deploynas.space import Space

PERCENTILES = (5, 50, 90, 95, 99)


class BenchResult(BaseModel):
    schema_: Literal["deploynas/bench"] = Field(default="deploynas/bench", alias="schema")
    schema_version: int = 1
    model: str
    model_sha256: str
    device: dict[str, Any]
    device_hash: str
    measurement: Measurement
    percentiles_ms: dict[str, float]
    mean_ms: float
    throughput_per_s: float  # inputs, not batches, at the median
    breakdown: list[Share]
    provenance: dict[str, Any]


def bench(
    model: str | Path,
    device: Device,
    *,
    shapes: Shapes | None = None,
    runs: int = 300,
    space: Space | None = None,
    on_progress: OnProgress = silent,
) -> BenchResult:
    """Time an ONNX file: about `runs` inferences over three fresh processes.

    `space`, where the model comes from one, has the blocks that tell the machine's speed meanwhile.
    """
    path = Path(model)
    content = _read_model(path)
    target = target_of(device)
    before = target.facts()
    workers, visits = 3, 10
    effort = device.effort.model_copy(
        update={
            "workers": workers,
            "visits": visits,
            "runs": max(1, -(-runs // (workers * visits))),
            "min_visit_ms": 0.0,
        }
    )
    entry = Entry(key=path.name, kind="file", path=str(path.resolve()), shapes=dict(shapes or {}))
    hurried = device.model_copy(update={"effort": effort})
    [measured] = measure_entries(hurried, [entry], space=space, on_progress=on_progress)
    samples = np.concatenate(measured.samples_ms)
    return BenchResult(
        model=path.name,
        model_sha256=hashlib.sha256(content).hexdigest(),
        device=device.describe(),
        device_hash=device.hash,
        measurement=measured,
        percentiles_ms={f"p{p}": float(np.percentile(samples, p)) for p in PERCENTILES},
        mean_ms=float(samples.mean()),
        throughput_per_s=1000 * device.batch / float(np.median(samples)),
        breakdown=target.breakdown(path.resolve(), shapes),
        provenance={
            "date": now(),
            "hardware": before.hardware.model_dump(),
            "versions": before.versions,
            "provider": device.provider_name,
            "load_before": before.load_average,
            "load_after": target.facts().load_average,
        },
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
