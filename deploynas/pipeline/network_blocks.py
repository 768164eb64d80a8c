"""Networks block by block: what each part is, what the table says it costs and, if shipped, what the profiler saw."""

from __future__ import annotations

from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.costs import Costs, combine, part_costs
from deploynas.latency.bench import BenchResult
from deploynas.latency.breakdown import Share
from deploynas.latency.table import LatencyTable
from deploynas.report.document import BlockReport, ExpectedBlock, ExpectedNetwork
from deploynas.space import Architecture, Piece


def block_reports(architecture: Architecture, table: LatencyTable | None, bench: BenchResult) -> list[BlockReport]:
    shares = {share.name: share for share in bench.breakdown}
    return [_block(piece, ms, shares.get(piece.name)) for piece, ms in _priced(architecture, table)]


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
            ExpectedBlock(name=piece.name, text=piece.parts[0].words(), shape=_shape(piece), predicted_ms=ms)
            for piece, ms in _priced(architecture, table)
        ],
    )


def _priced(architecture: Architecture, table: LatencyTable | None) -> list[tuple[Piece, float | None]]:
    """In network order, with what the table says; it has no entries of fixed parts."""

    def price(option: tuple[int, int, int] | None) -> float | None:
        if option is None or table is None:
            return None
        g, i, o = option
        return table.at(architecture).block_ms[g][i][o]

    return [(piece, price(piece.option)) for piece in architecture.space.pieces(architecture)]


def _shape(piece: Piece) -> str:
    """Of the first part, and how many there are."""
    part, repeats = piece.parts[0], len(piece.parts)
    shape = f"{part.in_channels}→{part.out_channels} @ {part.height}×{part.width}"
    return shape if repeats == 1 else f"{shape}, in {repeats} cells"


def _block(piece: Piece, predicted_ms: float | None, share: Share | None) -> BlockReport:
    costs, part = combine(*map(part_costs, piece.parts)), piece.parts[0]
    return BlockReport(
        name=piece.name,
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
