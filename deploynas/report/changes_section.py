"""What changing one thing about the shipped network would bring, as bars to either side."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from deploynas.report.change_lists import change_lists, change_rows
from deploynas.report.document import ChangeWorth, ReportFile
from deploynas.report.page import section


def changes_section(report: ReportFile) -> str:
    """Of reports from before there were single changes, what decisions are worth on average."""
    lists = change_lists(report)
    if not lists and report.decisions:
        note = "Points of accuracy that the estimator gives a change, beside what the change costs on this device."
        return section("What decisions were worth", _bars(report.decisions), note=note)
    if not lists:
        return ""
    parts = [f"<div><h3>{escape(title)}</h3>{_bars(changes)}</div>" for title, changes in lists]
    return section(
        "Change one thing about it",
        f'<div class="lists">{"".join(parts)}</div>',
        note="Points of one-shot accuracy that the estimator expects of the shipped network with one thing changed, "
        "beside the milliseconds that the table expects. An added block repeats the last one of its stage.",
    )


def _bars(changes: Sequence[ChangeWorth]) -> str:
    largest = max(abs(change.accuracy) for change in changes) or 1.0
    rows = []
    for change, (name, worth, cost) in zip(changes, change_rows(changes), strict=True):
        width = 50 * abs(change.accuracy) / largest
        start = 50.0 if change.accuracy >= 0 else 50 - width
        colour = "var(--good)" if change.accuracy >= 0 else "var(--bad)"
        rows.append(
            f'<span>{escape(name)}</span><span class="track"><i style="left:{start:.2f}%;width:{width:.2f}%;'
            f'background:{colour}"></i></span><span class="number">{escape(worth)}</span>'
            f'<span class="number soft">{escape(cost)}</span>'
        )
    return f'<div class="diverging">{"".join(rows)}</div>'
