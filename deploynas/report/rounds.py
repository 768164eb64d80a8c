"""The tries at the budget as rows; the shipped network is named among them."""

from __future__ import annotations

from deploynas.outcome import budget_words
from deploynas.report.document import ReportFile, Round
from deploynas.report.numbers import ms


def round_columns(report: ReportFile) -> tuple[str, ...]:
    measured = f"measured, {budget_words(report.device.budget)}"
    return "round", "network", "table asked for at most", "predicted", measured


def round_rows(report: ReportFile) -> list[tuple[str, ...]]:
    return [
        (str(i + 1), _network(report, one), ms(one.target_ms), ms(one.predicted_ms), ms(one.measured_ms))
        for i, one in enumerate(report.rounds)
    ]


def _network(report: ReportFile, one: Round) -> str:
    """A network is timed before it is fine-tuned, and again as a file: two measurements of one network may differ."""
    name = "shipped network" if one.architecture == report.architecture else "another network"
    if one.exported is None:
        return name
    return f"{name}, the exported file" if one.exported else f"{name}, before fine-tuning"
