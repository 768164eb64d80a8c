"""Predicted against measured latency of whole networks, and the tries at the budget."""

from __future__ import annotations

from deploynas.report.document import ReportFile
from deploynas.report.drawing import both, legend, measured_name, stages
from deploynas.report.latency_words import table_kind
from deploynas.report.numbers import percent
from deploynas.report.page import section, table
from deploynas.report.plot import Axis, Mark, Plot
from deploynas.report.rounds import round_columns, round_rows


def prediction_section(report: ReportFile) -> str:
    shipped = report.predicted_file
    parts = []
    if report.table_networks:
        marks = [
            Mark(
                n.measured_ms,
                n.predicted_ms,
                "predicted",
                ("Validation network of the table", *both(n.predicted_ms, n.measured_ms)),
            )
            for n in report.table_networks
        ]
        marks += [
            Mark(
                p.latency_ms,
                p.predicted_ms,
                "measured",
                (measured_name(report, p), *both(p.predicted_ms, p.latency_ms), *stages(p.architecture)),
            )
            for p in report.measured
            if not p.shipped  # that one follows
        ]
        if report.predicted_ms is not None:
            lines = ("Shipped", *both(report.predicted_ms, shipped.latency_ms), *stages(report.architecture))
            marks.append(Mark(shipped.latency_ms, report.predicted_ms, "shipped", lines, name="shipped"))
        values = [v for mark in marks for v in (mark.x, mark.y)]
        plot = Plot(
            "prediction",
            "Predicted against measured latency of whole networks",
            Axis.around("measured, ms", values),
            Axis.around("predicted, ms", values),
            marks,
            diagonal=True,
            band=0.05,
        )
        named = [
            ("predicted", "whole networks that the table was tested on"),
            ("measured", "frontier"),
            ("shipped", "shipped"),
        ]
        parts.append(f"<figure>{plot.svg()}{legend(named)}</figure>")
    if report.rounds:
        parts.append(table(round_columns(report), round_rows(report)))
    note = f"Latencies in the plot: {table_kind(report)}. The shaded band is ± 5 %."
    if report.table_error is not None:
        note += f" Mean error of the table on networks that it was not fitted on: {percent(report.table_error)}."
    return section("Predicted and measured latency", *parts, note=note)
