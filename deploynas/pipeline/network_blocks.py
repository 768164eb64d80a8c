"""The shipped network block by block: what each part is, what the table says it costs, what the profiler saw."""

from __future__ import annotations

from deploynas.costs import part_costs
from deploynas.latency.bench import BenchResult
from deploynas.latency.breakdown import Share
from deploynas.latency.table import LatencyTable
from deploynas.report.document import BlockReport
from deploynas.space import Architecture, Block, Head, Part, Separable, Stem


def block_reports(architecture: Architecture, table: LatencyTable | None, bench: BenchResult) -> list[BlockReport]:
    parts = architecture.space.parts(architecture)
    shares = {share.name: share for share in bench.breakdown}
    predicted: dict[str, float] = {}
    if table:
        names = [name for name, part in parts if isinstance(part, Block)]
        for name, (s, b, c) in zip(names, architecture.decisions(), strict=True):
            predicted[name] = table.block_ms[s][b][c]
    return [_block(name, part, predicted.get(name), shares.get(name)) for name, part in parts]


def _block(name: str, part: Part, predicted_ms: float | None, share: Share | None) -> BlockReport:
    costs = part_costs(part)
    kind, text, stride, leaving = _words(part)
    return BlockReport(
        name=name,
        kind=kind,
        text=text,
        in_channels=part.in_channels,
        out_channels=leaving,
        stride=stride,
        height=part.height,
        width=part.width,
        params=costs.params,
        macs=costs.macs,
        predicted_ms=predicted_ms,
        measured_ms=share.latency_ms if share else None,
        share=share.share if share else None,
    )


def _words(part: Part) -> tuple[str, str, int, int]:
    """Kind, configuration in words, stride, outputs."""
    if isinstance(part, Stem):
        return "stem", "conv 3×3", part.stride, part.out_channels
    if isinstance(part, Separable):
        return "first", f"depthwise {part.kernel}×{part.kernel}", part.stride, part.out_channels
    if isinstance(part, Head):
        hidden = f", dense {part.hidden}" if part.hidden else ""
        return "head", f"conv 1×1 to {part.features}{hidden}, pool", 1, part.classes
    if not isinstance(part, Block):
        raise TypeError(f"no words for a {type(part).__name__}")
    ratio = part.mid_channels / part.in_channels
    text = f"{part.kernel}×{part.kernel}, expand ×{ratio:.3g}" + (", SE" if part.se_channels else "")
    return "block", text, part.stride, part.out_channels
