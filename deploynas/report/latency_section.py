"""Both latencies side by side, in letters of one size, with what became of the budget; and how they were measured."""

from __future__ import annotations

from html import escape

from deploynas.report.document import ReportFile, ShippedFile
from deploynas.report.latency_words import (
    AS_IT_WAS,
    UNDISTURBED,
    Held,
    held,
    measured_columns,
    measured_how,
    measured_notes,
    median_ms,
    outcome_class,
    slower,
    undisturbed_ms,
)
from deploynas.report.numbers import among_ms, ms, percent
from deploynas.report.page import section, table

SIGNS = {"held": "✓", "held undisturbed": "!", "missed": "✗"}  # for those who do not see colours


def outcome_badge(found: Held) -> str:
    sign = f'<span aria-hidden="true">{SIGNS[found.outcome]}</span> '
    return f'<b class="outcome {outcome_class(found.outcome)}">{sign}{escape(found.phrase)}</b>'


def latency_tile(report: ReportFile) -> str:
    file, found = report.shipped, held(report)
    quiet = undisturbed_ms(report, file)
    if file.timing:
        sure = f"95 % interval {among_ms(file.timing.undisturbed.interval_ms)}"
    else:
        sure = f"± {percent(file.relative_error, 1)}" if quiet is not None else ""
    first, *rest = _percentiles(report)
    halves = [
        (UNDISTURBED, quiet, "", sure),
        (AS_IT_WAS, first[1], first[0], ", ".join([*(f"{name} {ms(value)}" for name, value in rest), *_call(file)])),
    ]
    longest = max(value for value in (quiet, first[1], report.budget_ms, 0.0) if value is not None)
    shown = "".join(
        f'<div><div class="which">{escape(which)}</div>'
        f'<div class="value">{escape(ms(value))}{f" <small>{name}</small>" if name else ""}</div>'
        f'{_gauge(report.budget_ms, value, longest)}<div class="under">{escape(under)}</div></div>'
        for which, value, name, under in halves
    )
    said, kind = "", ""
    if found:
        said = f'<p class="kept">Budget of {escape(found.budget)}: {outcome_badge(found)}</p>'
        kind = f" {outcome_class(found.outcome)}"
    return (
        f'<div class="latency{kind}"><div class="name">Latency, measured whole</div>'
        f'<div class="both">{shown}</div>{said}</div>'
    )


def _call(file: ShippedFile) -> list[str]:
    """Part of no latency, and of what a caller waits for."""
    return [f"calling it adds {ms(file.timing.call_ms)}"] if file.timing and file.timing.call_ms else []


def _percentiles(report: ReportFile) -> list[tuple[str, float | None]]:
    """As it was, the one that the budget is about first; the median if that is about none."""
    known = [("median", median_ms(report.shipped)), *slower(report.shipped)]
    return sorted(known, key=lambda one: one[0] != report.device.budget)  # a stable sort


def _gauge(budget_ms: float | None, value_ms: float | None, longest_ms: float) -> str:
    """A latency as a bar, the budget as a mark on it; both latencies on one scale."""
    if budget_ms is None or value_ms is None:
        return ""
    over = " over" if value_ms > budget_ms else ""
    at, width = (100 * v / longest_ms for v in (budget_ms, value_ms))
    bar = f'<i class="length{over}" style="width:{width:.1f}%"></i>'
    return f'<div class="gauge">{bar}<u style="left:{at:.1f}%"></u></div>'


def measured_section(report: ReportFile) -> str:
    note = escape(" ".join(measured_notes(report)))
    return section("How it was measured", table(measured_columns(report), measured_how(report)), note=note, kind="how")
