"""The shipped network block by block: shares of the measured whole, beside what the latency table says."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from deploynas.report.cell_picture import cell_picture
from deploynas.report.document import BlockReport, ReportFile
from deploynas.report.drawing import chips, colour, notation_of, tip
from deploynas.report.numbers import NOTHING, count, ms, percent
from deploynas.report.page import section
from deploynas.report.whole import OUTSIDE, Whole, block_note


def network_section(report: ReportFile) -> str:
    largest = max((block.share for block in report.blocks if block.share is not None), default=1.0) or 1.0
    whole = Whole.of(report)
    scale = 1 / (whole.latency_ms * largest)  # from milliseconds to the length of a bar
    ribbon = [
        f'<i data-tip="{tip(_lines(block, whole))}" style="flex:{block.share:.5f};background:{colour(block.name)}"></i>'
        for block in report.blocks
        if block.share is not None
    ]
    note = (
        f"{block_note(report)} The thin mark is what the latency table says of the same block; fixed parts have no "
        "entry of their own there."
    )
    head = _cells("", "", "", ("share", "of the measured whole", "table"), kind="head")
    rows = [head, *(_row(block, whole, scale) for block in report.blocks), _outside(whole, scale), _sum(whole)]
    return section(
        "The shipped network, block by block",
        cell_picture(report.architecture),
        f'<div class="ribbon">{"".join(ribbon)}</div>' if ribbon else "",
        f'<div class="flow blocks">{"".join(rows)}</div>',
        f"<details><summary>{notation_of(report.architecture)}</summary><code>{escape(report.architecture)}</code></details>",
        note=escape(note),
    )


def _row(block: BlockReport, whole: Whole, scale: float) -> str:
    mark = ""
    if block.predicted_ms is not None and block.share is not None:
        mark = f'<b style="left:{min(100 * block.predicted_ms * scale, 100):.2f}%"></b>'
    of_it, of_stage = whole.of_it(block), colour(block.name)
    shape = f"{block.in_channels}→{block.out_channels} @ {block.height}×{block.width}"
    name = f'<span class="dot" style="background:{of_stage}"></span>{escape(block.name)}'
    bar = _bar((of_it or 0.0) * scale, of_stage, mark)
    numbers = (percent(block.share, 1), ms(of_it), ms(block.predicted_ms))
    return _cells(name, chips(block.text, shape), bar, numbers, tip(_lines(block, whole)))


def _outside(whole: Whole, scale: float) -> str:
    """What the runtime does before the first block."""
    if not whole.outside:
        return ""
    of_it = whole.outside * whole.latency_ms
    name = f'<span class="dot" style="background:var(--faint)"></span>{OUTSIDE}'
    return _cells(name, "", _bar(of_it * scale, "var(--faint)"), (percent(whole.outside, 1), ms(of_it), NOTHING))


def _sum(whole: Whole) -> str:
    numbers = (percent(whole.share, 1), ms(whole.measured_ms), ms(whole.predicted_ms))
    fixed = f"fixed parts take {ms(whole.fixed_ms)} of the table's sum" if whole.fixed_ms is not None else ""
    return _cells("sum", f'<span class="soft">{fixed}</span>', "", numbers, kind="sum")


def _cells(name: str, what: str, bar: str, numbers: Sequence[str], hover: str = "", kind: str = "") -> str:
    """One row of the grid: who, what it is, a bar, three numbers."""
    of_kind, tipped = f' class="{kind}"' if kind else "", f' data-tip="{hover}"' if hover else ""
    shown = "".join(f'<span class="number">{escape(number)}</span>' for number in numbers)
    return f'<div{of_kind}{tipped}><span>{name}</span><span class="what">{what}</span><span>{bar}</span>{shown}</div>'


def _bar(length: float, fill: str, mark: str = "") -> str:
    width = f"width:{100 * length:.2f}%;background:{fill}"
    return f'<span class="bar"><i style="{width}"></i>{mark}</span>'


def _lines(block: BlockReport, whole: Whole) -> list[str]:
    return [
        f"{block.name}: {block.text}",
        f"{block.in_channels} channels of {block.height}×{block.width} → {block.out_channels}, stride {block.stride}",
        f"{count(block.params)} parameters, {count(block.macs)} MACs",
        f"{percent(block.share, 1)} of the measured whole: {ms(whole.of_it(block))}; table {ms(block.predicted_ms)}",
    ]
