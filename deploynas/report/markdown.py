"""The report as Markdown, for CI logs and pull requests."""

from __future__ import annotations

from collections.abc import Sequence

from deploynas.report.change_lists import CHANGE_COLUMNS, change_lists, change_rows
from deploynas.report.document import ReportFile
from deploynas.report.gain_words import ONE_SHOT, gain_columns, gain_rows, headline, verdict
from deploynas.report.numbers import change, count, interval, ms, percent, size


def markdown(report: ReportFile) -> str:
    parts = [f"# {report.title}", "", *_gain(report), *_summary(report)]
    if len(report.files) > 1:
        parts += ["", "## Precisions", "", *table_lines(_PRECISION_COLUMNS, precision_rows(report))]
    parts += ["", "## Blocks", "", *table_lines(_BLOCK_COLUMNS, block_rows(report))]
    if report.rounds:
        rows = [
            (str(i + 1), ms(r.target_ms), ms(r.predicted_ms), ms(r.measured_ms)) for i, r in enumerate(report.rounds)
        ]
        parts += ["", "## Rounds", "", *table_lines(("round", "asked for", "predicted", "measured"), rows)]
    for title, changes in change_lists(report):
        parts += ["", f"## {title}", "", *table_lines(CHANGE_COLUMNS, change_rows(changes))]
    if report.decisions:
        parts += ["", "## What decisions were worth", "", *table_lines(CHANGE_COLUMNS, change_rows(report.decisions))]
    if report.warnings:
        parts += ["", "## Warnings", "", *(f"- {warning}" for warning in report.warnings)]
    return "\n".join([*parts, "", f"`{report.architecture}`", ""])


_PRECISION_COLUMNS = ("file", "accuracy", "latency", "p95", "inputs/s", "size")
_BLOCK_COLUMNS = ("block", "what", "in", "out", "share", "measured", "predicted", "parameters", "MACs")


def _gain(report: ReportFile) -> list[str]:
    """What was gained comes first: accuracies of one kind at a time."""
    if report.gain is None:
        return []
    parts = [f"**{headline(report)}.**", *([f"{verdict(report)}."] if verdict(report) else []), ""]
    for judgement in (report.gain.fine_tuned, report.gain.one_shot):
        if judgement:
            parts += [*table_lines(gain_columns(judgement), gain_rows(report.gain, judgement)), ""]
    return [*parts, ONE_SHOT, ""]


def _summary(report: ReportFile) -> list[str]:
    rows = [*summary_rows(report), one_shot_row(report)]
    return table_lines(("", "predicted", "measured", "limit"), rows)


def summary_rows(report: ReportFile) -> list[tuple[str, str, str, str]]:
    """What a reader wants first: promise against fact."""
    shipped = report.shipped
    rows = [
        (
            "latency",
            ms(report.predicted_ms) + (f" ± {percent(report.table_error)}" if report.table_error is not None else ""),
            f"{ms(shipped.latency_ms)} ± {percent(shipped.relative_error)}",
            ms(report.budget_ms),
        ),
        ("accuracy, validation", "", percent(shipped.accuracy), ""),
    ]
    if report.test_accuracy is not None:
        rows.append(("accuracy, test", "", percent(report.test_accuracy), ""))
    rows.append(("file", "", size(shipped.size_bytes), ""))
    rows.append(("images", report.image_size, "", ""))
    rows.append(("parameters", count(report.params), "", ""))
    rows.append(("multiply-accumulates", count(report.macs), "", ""))
    rows.append(("peak activations, fp32", size(report.peak_memory_bytes), "", ""))
    return rows


def one_shot_row(report: ReportFile) -> tuple[str, str, str, str]:
    """Prediction against measurement before fine-tuning, which is what the estimator predicts."""
    return ("one-shot accuracy, validation", expected_accuracy(report), percent(report.inherited_accuracy), "")


def expected_accuracy(report: ReportFile) -> str:
    among = report.expected.interval if report.expected else None
    return percent(report.predicted_accuracy) + (f", {interval(*among)}" if among else "")


def precision_rows(report: ReportFile) -> list[tuple[str, ...]]:
    base = report.files[0]
    return [
        (
            f"{file.path} ({file.precision})",
            percent(file.accuracy),
            ms(file.latency_ms) + (f" ({change(file.latency_ms / base.latency_ms - 1)})" if file is not base else ""),
            ms(file.percentiles_ms.get("p95")),
            f"{file.throughput_per_s:.0f}",
            size(file.size_bytes),
        )
        for file in report.files
    ]


def block_rows(report: ReportFile) -> list[tuple[str, ...]]:
    return [
        (
            block.name,
            block.text,
            f"{block.in_channels}×{block.height}×{block.width}",
            str(block.out_channels),
            percent(block.share, 1),
            ms(block.measured_ms),
            ms(block.predicted_ms),
            count(block.params),
            count(block.macs),
        )
        for block in report.blocks
    ]


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
