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
    reports = {path.parent.name: ReportFile.load(path) for path in sorted(folder.glob(f"*/{FILE}"))}
    write_bytes(folder / PAGE, index(reports).encode())
    return folder / PAGE


def index(reports: dict[str, ReportFile]) -> str:
    columns = ("device", "accuracy", UNDISTURBED, f"{AS_IT_WAS} (median)", "budget", "outcome", "prediction", "file")
    head = "".join(f"<th>{column}</th>" for column in columns)
    rows = []
    for name, report in reports.items():
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
        rows.append(f"<tr><td>{link}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    content = f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
    return page("deploynas bundles", ["<h1>Bundles</h1>", section("One network a device", content, kind="bundles")])
