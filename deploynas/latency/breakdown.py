"""Where the time goes inside a model, from ONNX Runtime's own profiler: per block for our graphs, else per operator.

The profiler names the fused node after one of ours; nodes that the runtime adds itself (layout conversions) have no
name of ours and count towards the block they run in.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from deploynas.device import Device
from deploynas.latency.session import Session, Shapes, Values

RUNS = 30
_PART = re.compile(r"(stem|first|head|stage\d+/block\d+)/")


class Share(BaseModel):
    """The time of one block or one kind of operator, in a profiled run."""

    name: str
    latency_ms: float
    share: float


def breakdown(model: Path, device: Device, shapes: Shapes | None = None, values: Values | None = None) -> list[Share]:
    """Median time of each piece, in network order for our graphs and largest first for others."""
    with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
        session = Session(model, device, shapes, values, profile_prefix=str(Path(folder) / "profile"))
        for _ in range(device.effort.warmup_runs + RUNS):
            session.run()
        events = json.loads(session.end_profiling().read_text())
    runs = _nodes_by_run(events)[device.effort.warmup_runs :]
    ours = any(_PART.match(name) for name, _, _ in runs[0]) if runs else False
    totals: dict[str, list[float]] = {}
    for run in runs:
        for name, ms in _grouped(run, ours).items():
            totals.setdefault(name, []).append(ms)
    medians = {name: float(np.median(values)) for name, values in totals.items()}
    whole = sum(medians.values()) or 1.0
    shares = [Share(name=name, latency_ms=ms, share=ms / whole) for name, ms in medians.items()]
    return shares if ours else sorted(shares, key=lambda share: -share.latency_ms)


def _nodes_by_run(events: list[dict]) -> list[list[tuple[str, str, float]]]:
    """(name, operator, milliseconds) of every node, one list a run, in the order of execution."""
    runs: list[list[tuple[str, str, float]]] = []
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["name"] == "model_run":
            runs.append([])
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time") and runs:
            runs[-1].append((event["name"], event["args"].get("op_name", "?"), event["dur"] / 1000))
    return runs


def _grouped(nodes: list[tuple[str, str, float]], ours: bool) -> dict[str, float]:
    totals: dict[str, float] = {}
    current = "input"
    for name, operator, ms in nodes:
        if ours:
            match = _PART.match(name)
            current = match[1] if match else current
            key = current
        else:
            key = operator
        totals[key] = totals.get(key, 0.0) + ms
    return totals
