"""Networks block by block: what each part is, what the table says it costs and, if shipped, what the profiler saw."""

from __future__ import annotations

from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.blocks import Part
from deploynas.costs import Costs, part_costs
from deploynas.latency.bench import BenchResult
from deploynas.latency.breakdown import Share
from deploynas.latency.table import LatencyTable
from deploynas.report.document import BlockReport, ExpectedBlock, ExpectedNetwork
from deploynas.space import Architecture


def block_reports(architecture: Architecture, table: LatencyTable | None, bench: BenchResult) -> list[BlockReport]:
    shares = {share.name: share for share in bench.breakdown}
    return [_block(name, part, ms, shares.get(name)) for name, part, ms in _priced_parts(architecture, table)]


def expected_network(architecture: Architecture, estimator: StoredEstimator, table: LatencyTable) -> ExpectedNetwork:
    expectation, costs = estimator.expect(architecture), Costs.of(architecture.space, architecture)
    return ExpectedNetwork(
        latency_ms=table.predict(architecture),
        accuracy=expectation.accuracy,
        architecture=str(architecture),
        interval=expectation.interval(),
        params=costs.params,
        macs=costs.macs,
        fixed_ms=table.at(architecture).fixed_ms,
        blocks=[
            ExpectedBlock(name=name, text=part.words(), shape=_shape(part), predicted_ms=ms)
            for name, part, ms in _priced_parts(architecture, table)
        ],
    )


def _priced_parts(architecture: Architecture, table: LatencyTable | None) -> list[tuple[str, Part, float | None]]:
    """In network order, with what the table says; it has no entries of fixed parts."""
    decided, priced = architecture.blocks(), list[tuple[str, Part, float | None]]()
    for name, part in architecture.space.parts(architecture):
        ms = None
        if part.role == "block":
            s, b, c = next(decided)
            ms = table.at(architecture).block_ms[s][b][c] if table else None
        priced.append((name, part, ms))
    return priced


def _shape(part: Part) -> str:
    return f"{part.in_channels}→{part.out_channels} @ {part.height}×{part.width}"


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
