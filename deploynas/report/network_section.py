"""The shipped network block by block, by the runtime's profiler, beside what the latency table says."""

from __future__ import annotations

from html import escape

from deploynas.report.document import BlockReport, ReportFile
from deploynas.report.drawing import chips, colour, tip
from deploynas.report.numbers import count, ms, percent
from deploynas.report.page import section


def network_section(report: ReportFile) -> str:
    largest = max((block.share for block in report.blocks if block.share is not None), default=1.0) or 1.0
    known = [block for block in report.blocks if block.predicted_ms is not None]
    predicted_total = sum(block.predicted_ms or 0.0 for block in known)
    measured_share = sum(block.share or 0.0 for block in known)
    # a predicted millisecond as a share of the measured time of the same blocks, on the scale of the bars
    scale = measured_share / predicted_total / largest if predicted_total else 0.0
    ribbon = [
        f'<i data-tip="{tip(_lines(block))}" style="flex:{block.share:.5f};background:{colour(block.name)}"></i>'
        for block in report.blocks
        if block.share is not None
    ]
    note = (
        "Bars are shares of the measured time, by the runtime's profiler on the shipped file; the thin mark is the "
        "share that the latency table gives the same block. Fixed parts have no entry of their own in the table."
    )
    return section(
        "The shipped network, measured block by block",
        f'<div class="ribbon">{"".join(ribbon)}</div>' if ribbon else "",
        f'<div class="flow">{"".join(_row(block, largest, scale) for block in report.blocks)}</div>',
        f"<details><summary>timm notation</summary><code>{escape(report.architecture)}</code></details>",
        note=note,
    )


def _row(block: BlockReport, largest: float, scale: float) -> str:
    mark = ""
    if block.predicted_ms is not None and block.share is not None and scale:
        mark = f'<b style="left:{min(100 * block.predicted_ms * scale, 100):.2f}%"></b>'
    width, of_stage = 100 * (block.share or 0.0) / largest, colour(block.name)
    shape = f"{block.in_channels}→{block.out_channels} @ {block.height}×{block.width}"
    return (
        f'<div data-tip="{tip(_lines(block))}"><span><span class="dot" style="background:{of_stage}"></span>'
        f"{escape(block.name)}</span>"
        f'<span class="what">{chips(block.text, shape)}</span>'
        f'<span><span class="bar"><i style="width:{width:.2f}%;background:{of_stage}"></i>{mark}</span></span>'
        f'<span class="number">{percent(block.share, 1)}</span></div>'
    )


def _lines(block: BlockReport) -> list[str]:
    return [
        f"{block.name}: {block.text}",
        f"{block.in_channels} channels of {block.height}×{block.width} → {block.out_channels}, stride {block.stride}",
        f"{count(block.params)} parameters, {count(block.macs)} MACs",
        f"measured {ms(block.measured_ms)} ({percent(block.share, 1)}), table {ms(block.predicted_ms)}",
    ]
