"""One page for several bundles: a row a device, each with its report."""

from __future__ import annotations

from html import escape
from pathlib import Path

from deploynas.files import write_bytes
from deploynas.report.accuracy_words import accuracy_words
from deploynas.report.document import FILE, ReportFile
from deploynas.report.latency_section import outcome_badge
from deploynas.report.latency_words import AS_IT_WAS, UNDISTURBED, held, median_ms, undisturbed_ms
from deploynas.report.numbers import NOTHING, change, ms, size
from deploynas.report.page import page, section

PAGE = "index.html"


def write_index(folder: Path) -> Path:
    """List every bundle that lies in the folder."""
    # one report after the other: with its frontier a report takes a megabyte, and a line of the page does not
    rows = [_row(path.parent.name, ReportFile.load(path)) for path in sorted(folder.glob(f"*/{FILE}"))]
    write_bytes(folder / PAGE, _page(rows).encode())
    return folder / PAGE


def index(reports: dict[str, ReportFile]) -> str:
    return _page([_row(name, report) for name, report in reports.items()])


def _page(rows: list[str]) -> str:
    columns = ("device", "accuracy", UNDISTURBED, f"{AS_IT_WAS} (median)", "budget", "outcome", "prediction", "file")
    head = "".join(f"<th>{column}</th>" for column in columns)
    content = f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
    return page("deploynas bundles", ["<h1>Bundles</h1>", section("One network a device", content, kind="bundles")])


def _row(name: str, report: ReportFile) -> str:
    shipped = report.shipped
    found = held(report)
    cells = (
        accuracy_words(report, shipped),
        ms(undisturbed_ms(report, shipped)),
        ms(median_ms(shipped)),
        escape(found.budget) if found else NOTHING,
        outcome_badge(found) if found else NOTHING,
        change(report.prediction_error),
        size(shipped.size_bytes),
    )
    link = f'<a href="{escape(name, quote=True)}/report.html">{escape(report.device.name)}</a>'
    return f"<tr><td>{link}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
