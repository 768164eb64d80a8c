"""Where the time goes inside a model, from ONNX Runtime's own profiler: per block for our graphs, else per operator.

The profiler costs time itself, about the same at every node: on a small network several times what the network takes.
So its figures give shares, with that time taken out, and the milliseconds are shares of the whole as it was measured.

The profiler names the fused node after one of ours; nodes that the runtime adds itself (layout conversions) have no
name of ours and count towards the block they run in.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from deploynas.device import Device
from deploynas.latency.inputs import Shapes, Values
from deploynas.latency.session import Session
from deploynas.recorded import Count, NotNegative

RUNS = 30
LEAST_LEFT = 0.02  # of a piece's profiled time: the profiler's is an estimate, and no piece takes none
# of a cell the edge, since its operation is one decision for all cells
_PART = re.compile(r"(?:stage\d+/cell\d+/)?(stem|first|head|stage\d+/(?:block\d+|reduction)|edge\d+-\d+)/")


class Share(BaseModel):
    """The time of one block or one kind of operator: its share of the whole."""

    name: str
    latency_ms: NotNegative  # of the measured whole; in files of earlier versions, in the profiled run
    share: NotNegative
    profiled_ms: NotNegative | None = None  # in the profiled run, the profiler's own time included
    nodes: Count | None = None


def breakdown(model: Path, device: Device, shapes: Shapes | None = None, values: Values | None = None) -> list[Share]:
    """Median time of each piece, in network order for our graphs and largest first for others."""
    with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
        session = Session(model, device, shapes, values, profile_prefix=str(Path(folder) / "profile"))
        for _ in range(device.effort.warmup_runs + RUNS):
            session.run()
        events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
    runs = _nodes_by_run(events)[device.effort.warmup_runs :]
    ours = any(_PART.match(name) for name, _, _ in runs[0]) if runs else False
    totals: dict[str, list[float]] = {}
    nodes: dict[str, int] = {}
    for run in runs:
        for name, times in _grouped(run, ours).items():
            totals.setdefault(name, []).append(sum(times))
            nodes[name] = len(times)
    medians = {name: float(np.median(values)) for name, values in totals.items()}
    whole = sum(medians.values()) or 1.0
    shares = [
        Share(name=name, latency_ms=ms, share=ms / whole, profiled_ms=ms, nodes=nodes[name])
        for name, ms in medians.items()
    ]
    return shares if ours else sorted(shares, key=lambda share: -share.latency_ms)


def scaled(shares: Sequence[Share], whole_ms: float) -> tuple[list[Share], float]:
    """Shares of the measured whole, and by what factor the profiled run was slower than that."""
    profiled = sum(share.profiled_ms or 0.0 for share in shares)
    count = sum(share.nodes or 0 for share in shares)
    if not profiled or not count:
        return list(shares), 1.0
    cost_ms = max(0.0, profiled - whole_ms) / count  # of the profiler, at each node
    left = [
        max((share.profiled_ms or 0.0) - cost_ms * (share.nodes or 0), LEAST_LEFT * (share.profiled_ms or 0.0))
        for share in shares
    ]
    found = [
        share.model_copy(update={"share": ms / sum(left), "latency_ms": whole_ms * ms / sum(left)})
        for share, ms in zip(shares, left, strict=True)
    ]
    return found, profiled / whole_ms


def _nodes_by_run(events: list[dict]) -> list[list[tuple[str, str, float]]]:
    """(name, operator, milliseconds) of every node, one list a run, in the order of execution."""
    runs: list[list[tuple[str, str, float]]] = []
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["name"] == "model_run":
            runs.append([])
        elif event["cat"] == "Node" and event["name"].endswith("_kernel_time") and runs:
            runs[-1].append((event["name"], event["args"].get("op_name", "?"), event["dur"] / 1000))
    return runs


def _grouped(nodes: list[tuple[str, str, float]], ours: bool) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    current = "input"
    for name, operator, ms in nodes:
        if ours:
            match = _PART.match(name)
            current = match[1] if match else current
            key = current
        else:
            key = operator
        groups.setdefault(key, []).append(ms)
    return groups
