"""Which parts of the network are in 8 bits: what each loses and saves, and the frontier from fp32 to 8 bits."""

from __future__ import annotations

from html import escape

from deploynas.report.document import ReportFile
from deploynas.report.drawing import legend
from deploynas.report.int8_words import (
    ASSIGNMENT_COLUMNS,
    PART_COLUMNS,
    assignment_rows,
    in_8_bits,
    mixed_note,
    part_rows,
)
from deploynas.report.mixed_precision import MixedPrecisionRecord
from deploynas.report.numbers import ms
from deploynas.report.page import section, table
from deploynas.report.plot import Axis, Mark, Plot


def int8_section(report: ReportFile) -> str:
    record = report.assignments
    if record is None:
        return ""
    body = (
        _plot(record)
        + table(ASSIGNMENT_COLUMNS, assignment_rows(record))
        + table(PART_COLUMNS, part_rows(record.parts))
    )
    return section("8 bits, part by part", body, note=escape(mixed_note(record)))


def _plot(record: MixedPrecisionRecord) -> str:
    marks = []
    for point in record.frontier:
        name = f"In 8 bits: {in_8_bits(point, record)}"
        lines = (name, f"predicted {ms(point.predicted_ms)}, {-100 * point.predicted_drop:+.2f} points")
        marks.append(Mark(point.predicted_ms, -point.predicted_drop, "predicted", lines))
        if point.measured_ms is not None and point.measured_drop is not None:
            lines = (name, f"measured {ms(point.measured_ms)}, {-100 * point.measured_drop:+.2f} points")
            kind = "shipped" if point.chosen else "measured"
            marks.append(
                Mark(point.measured_ms, -point.measured_drop, kind, lines, name="chosen" if point.chosen else "")
            )
    plot = Plot(
        "assignments",
        "Accuracy against latency, from fp32 to 8 bits in all parts",
        Axis.around("latency, ms", [mark.x for mark in marks]),
        Axis.around("accuracy beside fp32, points", [mark.y for mark in marks], 100),
        marks,
        line=[(point.predicted_ms, -point.predicted_drop) for point in record.frontier],
    )
    named = [("predicted", "predicted"), ("measured", "measured"), ("shipped", "chosen")]
    return legend(named) + plot.svg()
