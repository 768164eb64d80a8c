"""The report as Markdown, for CI logs and pull requests."""

from __future__ import annotations

from collections.abc import Sequence

from deploynas.report.accuracy_words import accuracy_words
from deploynas.report.change_lists import CHANGE_COLUMNS, change_lists, change_rows
from deploynas.report.document import ReportFile
from deploynas.report.gain_words import ONE_SHOT, gain_columns, gain_rows, headline, scale_words, verdict
from deploynas.report.int8_words import (
    ASSIGNMENT_COLUMNS,
    PART_COLUMNS,
    assignment_rows,
    kernel_sentences,
    mixed_note,
    part_rows,
)
from deploynas.report.latency_words import (
    AS_IT_WAS,
    UNDISTURBED,
    latency_rows,
    measured_columns,
    measured_how,
    measured_notes,
    median_ms,
    undisturbed_ms,
)
from deploynas.report.numbers import change, count, interval, ms, percent, size
from deploynas.report.rounds import round_columns, round_rows
from deploynas.report.whole import OUTSIDE, Whole, block_note


def markdown(report: ReportFile) -> str:
    parts = [f"# {plain(report.title)}", "", *_gain(report), *_summary(report)]
    if len(report.files) > 1 or report.verdicts:
        parts += ["", "## Precisions", "", *table_lines(PRECISION_COLUMNS, precision_rows(report))]
        parts += ["", *verdict_lines(report)] if report.verdicts else []
        parts += ["", " ".join(kernel_sentences(report.calibration))] if report.calibration else []
    if report.assignments:
        found = report.assignments
        parts += ["", "## 8 bits, part by part", "", *table_lines(ASSIGNMENT_COLUMNS, assignment_rows(found))]
        parts += ["", *table_lines(PART_COLUMNS, part_rows(found.parts)), "", mixed_note(found)]
    parts += ["", "## How it was measured", "", *measured_lines(report)]
    if report.blocks:
        parts += ["", "## Blocks", "", *table_lines(_BLOCK_COLUMNS, [*block_rows(report), _sum_row(report)])]
        parts += ["", block_note(report)]
    if report.rounds:
        parts += ["", "## Rounds", "", *table_lines(round_columns(report), round_rows(report))]
    for title, changes in change_lists(report):
        parts += ["", f"## {title}", "", *table_lines(CHANGE_COLUMNS, change_rows(changes))]
    if report.decisions:
        parts += ["", "## What decisions were worth", "", *table_lines(CHANGE_COLUMNS, change_rows(report.decisions))]
    if report.warnings:
        parts += ["", "## Warnings", "", *(f"- {plain(warning)}" for warning in report.warnings)]
    return "\n".join([*parts, "", f"`{report.architecture}`", ""])


PRECISION_COLUMNS = ("file", "accuracy", UNDISTURBED, f"{AS_IT_WAS} (median)", "inputs/s", "size")
_BLOCK_COLUMNS = ("block", "what", "in", "out", "share", "of the measured whole", "table", "parameters", "MACs")


def _gain(report: ReportFile) -> list[str]:
    """What was gained comes first: accuracies of one kind at a time."""
    if report.gain is None:
        return []
    parts = [f"**{headline(report)}.**", *([f"{verdict(report)}."] if verdict(report) else []), ""]
    for judgement in (report.gain.fine_tuned, report.gain.one_shot):
        if judgement:
            parts += [*table_lines(gain_columns(judgement), gain_rows(report.gain, judgement)), ""]
    scale = [f"{scale_words(report)}."] if report.joint_scale is not None else []
    return [*parts, " ".join([ONE_SHOT, *scale]), ""]


def _summary(report: ReportFile) -> list[str]:
    rows = [*summary_rows(report), *([] if report.untrained else [one_shot_row(report)])]
    return table_lines(("", "predicted", "measured", "limit"), rows)


def summary_rows(report: ReportFile) -> list[tuple[str, str, str, str]]:
    """What a reader wants first: promise against fact."""
    shipped = report.shipped
    rows = [*latency_rows(report), ("accuracy, validation", "", accuracy_words(report, shipped), "")]
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
    """A row per file; latencies of a second file with how far they are from the first one's."""
    first = report.files[0]
    return [
        (
            f"{file.path} ({file.precision})",
            accuracy_words(report, file),
            _beside(undisturbed_ms(report, file), undisturbed_ms(report, first)),
            _beside(median_ms(file), median_ms(first)),
            f"{file.throughput_per_s:.0f}",
            size(file.size_bytes),
        )
        for file in report.files
    ]


def verdict_lines(report: ReportFile) -> list[str]:
    """Why files with fewer bits are there, or are not."""
    return [f"- {verdict.words}" for verdict in report.verdicts]


def _beside(own_ms: float | None, first_ms: float | None) -> str:
    if own_ms is None or first_ms is None or own_ms == first_ms:
        return ms(own_ms)
    return f"{ms(own_ms)} ({change(own_ms / first_ms - 1)})"


def measured_lines(report: ReportFile) -> list[str]:
    """How both latencies were found, and what else was measured."""
    notes = measured_notes(report)
    return [*table_lines(measured_columns(report), measured_how(report)), *(["", " ".join(notes)] if notes else [])]


def block_rows(report: ReportFile) -> list[tuple[str, ...]]:
    whole = Whole.of(report)
    rows: list[tuple[str, ...]] = [
        (
            block.name,
            block.text,
            f"{block.in_channels}×{block.height}×{block.width}",
            str(block.out_channels),
            percent(block.share, 1),
            ms(whole.of_it(block)),
            ms(block.predicted_ms),
            count(block.params),
            count(block.macs),
        )
        for block in report.blocks
    ]
    if whole.outside:
        rows.append((OUTSIDE, "", "", "", percent(whole.outside, 1), ms(whole.outside * whole.latency_ms), "", "", ""))
    return rows


def _sum_row(report: ReportFile) -> tuple[str, ...]:
    whole = Whole.of(report)
    sums = (percent(whole.share, 1), ms(whole.measured_ms), whole.predicted())
    return ("**sum**", "", "", "", *sums, count(report.params), count(report.macs))


def plain(text: str) -> str:
    """Text that may be a stranger's: in one line, and no element of HTML, which Markdown would let through."""
    return " ".join(text.replace("<", "&lt;").splitlines())


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    return lines + ["| " + " | ".join(plain(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
