"""Single changes of the shipped network, as lists that answer a question each, and as rows."""

from __future__ import annotations

from collections.abc import Sequence

from deploynas.report.document import ChangeWorth, ReportFile

SHOWN = 5  # changes of each sort
CHANGE_COLUMNS = ("change", "one-shot accuracy, points", "latency")


def change_lists(report: ReportFile) -> list[tuple[str, list[ChangeWorth]]]:
    """The single changes of the shipped network that a reader asks for, a few of each sort."""
    better = [c for c in report.changes if c.accuracy > 0]
    slower = [c for c in better if c.latency_ms is not None and c.latency_ms > 0]
    faster = [c for c in report.changes if c.latency_ms is not None and c.latency_ms < 0]
    lists = [
        ("What would make it more accurate", better[:SHOWN]),
        ("What would bring most per millisecond", sorted(slower, key=_per_ms, reverse=True)[:SHOWN]),
        ("What would make it faster for the least accuracy", sorted(faster, key=_per_ms)[:SHOWN]),
    ]
    return [(title, changes) for title, changes in lists if changes]


def _per_ms(one: ChangeWorth) -> float:
    assert one.latency_ms
    return one.accuracy / one.latency_ms


def change_rows(changes: Sequence[ChangeWorth]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in changes:
        error = "" if one.accuracy_se is None else f" ± {100 * one.accuracy_se:.2f}"
        cost = "" if one.latency_ms is None else f"{one.latency_ms:+.4f} ms"
        rows.append((one.name, f"{100 * one.accuracy:+.2f}{error}", cost))
    return rows
