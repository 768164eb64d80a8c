"""How explanations look as a page: findings, then the paper's Figure 5 as bars, accuracy above, latency below."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from deploynas.report.charts import Bar, bar_chart
from deploynas.report.landscape import landscape_section

if TYPE_CHECKING:
    from deploynas.accuracy.explanation_files import AtNetwork
    from deploynas.accuracy.insights import InsightRecord, InsightsFile

NAMES = {"depth": "Depth", "expansion": "Expansion ratio", "kernel": "Kernel", "se": "Squeeze-and-excitation"}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #111827 }
.charts { display: flex; flex-wrap: wrap; gap: 1rem } svg { max-width: 100%; height: auto }
td, th { text-align: left; padding: .1rem 1.2rem .1rem 0 } h2 { margin: 1.6rem 0 .4rem } .note { color: #6b7280 }
"""


def page(document: InsightsFile) -> str:
    device = f" on {escape(document.device)}" if document.device else ""
    findings = "".join(f"<li>{escape(finding)}</li>" for finding in document.findings)
    found = f"<ul>{findings}</ul>" if findings else "<p>No finding is beyond its error bars.</p>"
    sections = "".join(_section(document, place) for place in ("stage", "block"))
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>Design choices of {escape(document.space)}</title>'
        f"<style>{STYLE}</style></head><body>"
        f"<h1>What design choices are worth in space {escape(document.space)}{device}</h1>"
        f"{found}<p class='note'>{_trust(document)} Bars are means over all other choices, with 95 % intervals.</p>"
        f"{_at(document.at) if document.at else ''}"
        f"{landscape_section(document.landscape) if document.landscape else ''}{sections}</body></html>\n"
    )


def _at(at: AtNetwork) -> str:
    """What single changes would bring to one network, as a table."""
    timed = at.network.latency_ms is not None
    rows = ""
    for change in at.changes:
        cells = [change.what, change.place, _points(change.accuracy, change.accuracy_se)]
        cells += [f"{change.latency_ms:+.3g}"] if change.latency_ms is not None else []
        rows += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    names = ["change", "where", "accuracy, points", *(["latency, ms"] if timed else [])]
    head = "".join(f"<th>{name}</th>" for name in names)
    accuracy = "not known" if at.network.accuracy is None else f"{100 * at.network.accuracy:.2f} %"
    latency = f", {at.network.latency_ms:.3g} ms" if at.network.latency_ms is not None else ""
    return (
        f"<h2>Changes of one network</h2><p><code>{escape(at.network.architecture)}</code></p>"
        f"<p>Expected accuracy {accuracy}{latency}. Every change by itself:</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _points(gain: float, se: float | None) -> str:
    return f"{100 * gain:+.2f}" + (f" ± {100 * se:.2f}" if se is not None else "")


def _section(document: InsightsFile, place: str) -> str:
    charts = []
    for aspect, name in NAMES.items():
        of_aspect = [i for i in document.insights if i.aspect == aspect and i.place.startswith(place)]
        if not of_aspect:
            continue
        charts.append(_chart(f"{name}: accuracy", "points", of_aspect, [_gain(i) for i in of_aspect]))
        if document.device:
            costs = [Bar(i.place, i.cost_ms or 0.0) for i in of_aspect]
            charts.append(_chart(f"{name}: latency", "ms", of_aspect, costs))
    return f"<h2>By {place}</h2><div class='charts'>{''.join(charts)}</div>" if charts else ""


def _chart(title: str, unit: str, insights: Sequence[InsightRecord], bars: Sequence[Bar]) -> str:
    """One group of bars a place, one colour a change; a change that a place does not offer is worth nothing there."""
    places, changes = (
        list(dict.fromkeys(values)) for values in zip(*((i.place, i.change) for i in insights), strict=True)
    )
    by_key = {(i.change, i.place): bar for i, bar in zip(insights, bars, strict=True)}
    series = [(change, [by_key.get((change, place), Bar(place, 0.0)) for place in places]) for change in changes]
    only = f", {changes[0]}" if len(changes) == 1 else ""
    return bar_chart(f"{title}{only}", unit, series)


def _gain(insight: InsightRecord) -> Bar:
    error = None if insight.gain_se is None else 1.96 * 100 * insight.gain_se
    return Bar(insight.place, 100 * insight.gain, error)


def _trust(document: InsightsFile) -> str:
    validation = document.validation
    if not validation or validation.get("kendall_tau") is None:
        return "The estimator was not validated."
    tau, networks = validation["kendall_tau"], validation["networks"]
    return f"The estimator ranks {networks} unseen networks with a Kendall tau of {tau:.2f}."
