"""One device's report as a page: what was gained first, then the frontier, the network, and where it came from."""

from __future__ import annotations

from html import escape

from deploynas.provenance import Origin
from deploynas.report.accuracy_words import accuracy_words
from deploynas.report.changes_section import changes_section
from deploynas.report.document import ReportFile
from deploynas.report.explorer import explorer_section
from deploynas.report.gain_section import gain_section
from deploynas.report.int8_section import int8_section
from deploynas.report.int8_words import kernel_sentences
from deploynas.report.latency_section import latency_tile, measured_section
from deploynas.report.latency_words import table_kind
from deploynas.report.markdown import PRECISION_COLUMNS, precision_rows
from deploynas.report.network_section import network_section
from deploynas.report.numbers import change, count, ms, percent, size
from deploynas.report.page import page, section, table
from deploynas.report.prediction_section import prediction_section


def html(report: ReportFile) -> str:
    body = [
        _header(report),
        gain_section(report),
        _tiles(report),
        explorer_section(report),
        _warnings(report),
        network_section(report),
        changes_section(report),
        prediction_section(report),
        _precisions(report),
        int8_section(report),
        measured_section(report),
        _provenance(report),
    ]
    return page(report.title, [part for part in body if part], scripts=("page.js", "explorer.js"))


def _warnings(report: ReportFile) -> str:
    items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
    return section("Warnings", f'<ul id="warnings">{items}</ul>', kind="warnings") if items else ""


def _header(report: ReportFile) -> str:
    device = report.device
    where = f"{device.provider}, {device.threads} thread(s), batch {device.batch}, {device.precision}"
    number = len(report.warnings)
    doubts = f' <a href="#warnings">{number} warning{"s" if number > 1 else ""}</a>.' if number else ""
    return (
        f"<header><h1>{escape(report.title)}</h1><p class='soft'>Found among {escape(report.space_size)} networks of "
        f"space <b>{escape(report.space)}</b>, measured on <b>{escape(device.name)}</b> ({escape(where)}; "
        f"{escape(report.hardware.processor)}), {escape(report.created)}.{doubts}</p></header>"
    )


def _tiles(report: ReportFile) -> str:
    shipped, test = report.shipped, report.test_accuracy
    tiles = [
        (
            "Accuracy" if report.untrained else "Accuracy, fine-tuned",
            accuracy_words(report, shipped) if test is None else percent(test),
            "weights are random"
            if report.untrained
            else f"{report.data.validation_images} validation images"
            if test is None
            else f"{report.data.test_images} test images; validation {accuracy_words(report, shipped)}",
        ),
        (
            "Prediction off by",
            change(report.prediction_error),
            f"predicted {ms(report.predicted_ms)}, {table_kind(report)}"
            + ("" if report.predicted_file is report.shipped else f", {report.predicted_file.precision}"),
        ),
        (
            "File",
            size(shipped.size_bytes),
            f"{count(report.params)} parameters, {count(report.macs)} MACs, images of {report.image_size}",
        ),
    ]
    others = (
        f'<div><div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
        f'<div class="under">{escape(under)}</div></div>'
        for name, value, under in tiles
    )
    return f'<div class="tiles">{latency_tile(report)}{"".join(others)}</div>'


def _precisions(report: ReportFile) -> str:
    checked = report.verification
    note = (
        f"Verified before anything was written: ONNX checker; logits of torch and ONNX Runtime at batches "
        f"{', '.join(str(b) for b in checked.batches)} differ by at most {checked.max_difference:.1e} "
        f"(tolerance {checked.tolerance:.1e}); same top-1 class on {checked.images} validation images"
        + (f", ties aside ({checked.ties})." if checked.ties else ".")
    )
    if report.calibration:
        c = report.calibration
        weights = "a scale a channel" if c.per_channel else "one scale a tensor"
        ranges = (
            "weights and ranges were trained in 8 bits"
            if c.method == "trained"
            else f"ranges by `{c.method}` from {c.images} training images"
        )
        note += f" 8 bits: {ranges}, weights with {weights}."
        note += "".join(f" {sentence}" for sentence in kernel_sentences(c))
    *others, last = (file.precision for file in report.files)
    title = f"{', '.join(others)} and {last}" if others else "The file"
    said = "".join(f'<p class="verdict">{escape(verdict.words)}</p>' for verdict in report.verdicts)
    return section(title, table(PRECISION_COLUMNS, precision_rows(report)) + said, note=escape(note))


def _provenance(report: ReportFile) -> str:
    data = report.data
    rows = [
        (
            "data",
            f"{data.name}: {data.train_images} training, {data.validation_images} validation, "
            f"{data.test_images} test images",
        ),
        ("versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())),
    ]
    rows += [(name, _origin(found)) for name, found in report.lineage.items()]
    lines = "".join(
        f"<tr><td>{escape(k)}</td><td style='white-space:normal;text-align:left'><code>{escape(v)}</code></td></tr>"
        for k, v in rows
    )
    return section("Provenance", f'<div class="scroll"><table>{lines}</table></div>')


def _origin(found: Origin | None) -> str:
    return f"{found.path}  sha256 {found.sha256[:16]}…" if found else "not known"
