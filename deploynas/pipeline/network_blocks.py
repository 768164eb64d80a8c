"""The shipped network block by block: what each part is, what the table says it costs, what the profiler saw."""

from __future__ import annotations

from deploynas.blocks import Part
from deploynas.costs import part_costs
from deploynas.latency.bench import BenchResult
from deploynas.latency.breakdown import Share
from deploynas.latency.table import LatencyTable
from deploynas.report.document import BlockReport
from deploynas.space import Architecture


def block_reports(architecture: Architecture, table: LatencyTable | None, bench: BenchResult) -> list[BlockReport]:
    parts = architecture.space.parts(architecture)
    shares = {share.name: share for share in bench.breakdown}
    predicted: dict[str, float] = {}
    if table:
        names = [name for name, part in parts if part.role == "block"]
        for name, (s, b, c) in zip(names, architecture.decisions(), strict=True):
            predicted[name] = table.block_ms[s][b][c]
    return [_block(name, part, predicted.get(name), shares.get(name)) for name, part in parts]


def _block(name: str, part: Part, predicted_ms: float | None, share: Share | None) -> BlockReport:
    costs = part_costs(part)
    return BlockReport(
        name=name,
        kind=part.role,
        text=part.words(),
        in_channels=part.in_channels,
        out_channels=part.out_channels,
        stride=part.stride,
        height=part.height,
        width=part.width,
        params=costs.params,
        macs=costs.macs,
        predicted_ms=predicted_ms,
        measured_ms=share.latency_ms if share else None,
        share=share.share if share else None,
    )
