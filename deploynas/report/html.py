"""One device's report as a page: promise against fact first, then the frontier, the network, and where it came from."""

from __future__ import annotations

import re
from html import escape

from deploynas.provenance import Origin
from deploynas.report.document import BlockReport, Point, ReportFile, ShippedFile
from deploynas.report.markdown import decision_rows, precision_rows
from deploynas.report.numbers import change, count, ms, percent, size
from deploynas.report.page import page, section, table
from deploynas.report.plot import Axis, Mark, Plot

_LEGEND_SHAPES = {
    "predicted": '<circle cx="8" cy="8" r="4.5"/>',
    "measured": '<rect x="4" y="4" width="8" height="8" transform="rotate(45 8 8)"/>',
    "shipped": '<path d="M8,0L10.3,5.3L16,5.7L11.6,9.4L13,15L8,12L3,15L4.4,9.4L0,5.7L5.7,5.3Z"/>',
    "int8": '<path d="M8,0L10.3,5.3L16,5.7L11.6,9.4L13,15L8,12L3,15L4.4,9.4L0,5.7L5.7,5.3Z"/>',
}
FAR = 2.0  # times the slowest network: a budget beyond is not drawn


def html(report: ReportFile) -> str:
    body = [_header(report), _tiles(report)]
    if report.warnings:
        items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
        body.append(section("Warnings", f"<ul>{items}</ul>", kind="warnings"))
    if report.frontier:
        body.append(_frontier(report))
    body += [_network(report), _prediction(report), _precisions(report)]
    if report.decisions:
        body.append(_decisions(report))
    body.append(_provenance(report))
    return page(report.title, body)


def _header(report: ReportFile) -> str:
    device = report.device
    where = f"{device.provider}, {device.threads} thread(s), batch {device.batch}, {device.precision}"
    return (
        f"<header><h1>{escape(report.title)}</h1><p class='soft'>Found among {escape(report.space_size)} networks of "
        f"space <b>{escape(report.space)}</b>, measured on <b>{escape(device.name)}</b> ({escape(where)}; "
        f"{escape(report.hardware.processor)}), {escape(report.created)}.</p></header>"
    )


def _tiles(report: ReportFile) -> str:
    shipped, budget = report.shipped, report.budget_ms
    latency = f"± {percent(shipped.relative_error, 1)}, {report.device.statistic}"
    if budget is not None:
        met = shipped.latency_ms <= budget
        word = f'<b class="{"ok" if met else "missed"}">{"within" if met else "over"}</b> the budget of {ms(budget)}'
        share = min(100.0, 100 * shipped.latency_ms / budget)
        latency = f'<div class="gauge"><i style="width:{share:.1f}%"></i></div>{word}'
    tiles = [
        ("Latency, measured whole", ms(shipped.latency_ms), latency),
        (
            "Accuracy, validation",
            percent(shipped.accuracy),
            f"test {percent(report.test_accuracy)}"
            if report.test_accuracy is not None
            else f"{percent(report.inherited_accuracy)} before fine-tuning",
        ),
        ("Prediction against measurement", change(report.prediction_error), f"predicted {ms(report.predicted_ms)}"),
        ("File", size(shipped.size_bytes), f"{count(report.params)} parameters, {count(report.macs)} MACs"),
    ]
    return (
        '<div class="tiles">'
        + "".join(
            f'<div><div class="name">{escape(name)}</div><div class="value">{escape(value)}</div>'
            f'<div class="under">{under}</div></div>'
            for name, value, under in tiles
        )
        + "</div>"
    )


def _frontier(report: ReportFile) -> str:
    marks = _frontier_marks(report)
    xs, budget = [mark.x for mark in marks], report.budget_ms
    if budget is not None and budget < FAR * max(xs):
        xs.append(budget)
    else:
        budget = None  # a line so far away would squeeze everything else; the tile above names it
    plot = Plot(
        "frontier",
        f"Accuracy against latency: {len(report.frontier)} predicted optima, {len(report.measured)} measured networks",
        Axis.around(f"latency on {report.device.name}, ms", xs),
        Axis.around("accuracy, %", [mark.y for mark in marks], factor=100),
        marks,
        line=[(p.latency_ms, p.accuracy) for p in report.frontier],
        vertical=(budget, f"budget {ms(budget)}") if budget is not None else None,
    )
    legend = [("predicted", "predicted optimum")]
    if report.measured:
        legend.append(("measured", "measured, inherited weights"))
    legend += [(_mark_kind(file, report), f"shipped, {file.precision}, measured") for file in report.files]
    note = (
        "Every hollow point is the most accurate network for its latency, by estimator and table; filled ones were "
        "measured. The shipped network was fine-tuned, the others were not."
    )
    trust = report.estimator_validation
    if trust and trust.kendall_tau is not None:
        note += f" The estimator ranks {trust.networks} unseen networks with a Kendall tau of {trust.kendall_tau:.2f}."
    return section("Accuracy and latency", f"<figure>{plot.svg()}{_legend(legend)}</figure>", note=escape(note))


def _frontier_marks(report: ReportFile) -> list[Mark]:
    """Predicted optima, measured networks of the frontier, and what is shipped."""
    predicted = [
        (p, "predicted", ("Predicted optimum", *_facts(p.latency_ms, p.accuracy)), p.architecture)
        for p in report.frontier
    ]
    measured = [
        (
            p,
            "measured",
            (
                "Measured, inherited weights",
                *_facts(p.latency_ms, p.accuracy),
                f"predicted: {ms(p.predicted_ms)}, {percent(p.predicted_accuracy)}",
            ),
            p.architecture,
        )
        for p in report.measured
    ]
    shipped = [
        (
            file,
            _mark_kind(file, report),
            (f"Shipped, {file.precision}, fine-tuned", *_facts(file.latency_ms, file.accuracy)),
            report.architecture,
        )
        for file in report.files
    ]
    shown: list[tuple[Point | ShippedFile, str, tuple[str, ...], str]] = [*predicted, *measured, *shipped]
    return [
        Mark(point.latency_ms, point.accuracy, kind, (*lines, *_stages(architecture)))
        for point, kind, lines, architecture in shown
    ]


def _mark_kind(file: ShippedFile, report: ReportFile) -> str:
    """The file that the budget is for stands out."""
    return "shipped" if file.precision == report.gated or file.precision != "int8" else "int8"


def _network(report: ReportFile) -> str:
    known = [block.share for block in report.blocks if block.share is not None]
    largest = max(known, default=1.0) or 1.0
    rows, ribbon = [], []
    predicted_total = sum(block.predicted_ms or 0.0 for block in report.blocks)
    measured_total = sum(block.measured_ms or 0.0 for block in report.blocks if block.predicted_ms is not None)
    for block in report.blocks:
        colour = f"var(--s{_stage(block.name)})"
        tip = escape("\n".join(_block_lines(block)), quote=True).replace("\n", "&#10;")
        if block.share is not None:
            ribbon.append(f'<i data-tip="{tip}" style="flex:{block.share:.5f};background:{colour}"></i>')
        # the table's share of the same blocks, on the scale of the measured ones
        mark = ""
        if block.predicted_ms is not None and block.share is not None and predicted_total and measured_total:
            known_share = sum(b.share or 0.0 for b in report.blocks if b.predicted_ms is not None)
            place = 100 * block.predicted_ms / predicted_total * known_share / largest
            mark = f'<b style="left:{min(place, 100):.2f}%"></b>'
        width = 100 * (block.share or 0.0) / largest
        rows.append(
            f'<div data-tip="{tip}"><span><span class="dot" style="background:{colour}"></span>'
            f"{escape(block.name)}</span>"
            f'<span class="what">{_chips(block)}</span>'
            f'<span><span class="bar"><i style="width:{width:.2f}%;background:{colour}"></i>{mark}</span></span>'
            f'<span class="number">{percent(block.share, 1)}</span></div>'
        )
    note = (
        "Bars are shares of the measured time, by the runtime's profiler on the shipped file; the thin mark is the "
        "share that the latency table gives the same block. Fixed parts have no entry of their own in the table."
    )
    return section(
        "The network, block by block",
        f'<div class="ribbon">{"".join(ribbon)}</div>' if ribbon else "",
        f'<div class="flow">{"".join(rows)}</div>',
        f"<details><summary>timm notation</summary><code>{escape(report.architecture)}</code></details>",
        note=note,
    )


def _prediction(report: ReportFile) -> str:
    shipped = report.shipped
    parts = []
    if report.table_networks:
        marks = [
            Mark(
                n.measured_ms,
                n.predicted_ms,
                "predicted",
                ("Validation network of the table", *_both(n.predicted_ms, n.measured_ms)),
            )
            for n in report.table_networks
        ]
        marks += [
            Mark(
                p.latency_ms,
                p.predicted_ms,
                "measured",
                ("Network of the frontier", *_both(p.predicted_ms, p.latency_ms), *_stages(p.architecture)),
            )
            for p in report.measured
        ]
        if report.predicted_ms is not None:
            lines = ("Shipped", *_both(report.predicted_ms, shipped.latency_ms), *_stages(report.architecture))
            marks.append(Mark(shipped.latency_ms, report.predicted_ms, "shipped", lines))
        values = [v for mark in marks for v in (mark.x, mark.y)]
        plot = Plot(
            "prediction",
            "Predicted against measured latency of whole networks",
            Axis.around("measured, ms", values),
            Axis.around("predicted, ms", values),
            marks,
            diagonal=True,
            band=0.05,
        )
        legend = [
            ("predicted", "whole networks that the table was tested on"),
            ("measured", "frontier"),
            ("shipped", "shipped"),
        ]
        parts.append(f"<figure>{plot.svg()}{_legend(legend)}</figure>")
    rows = [(str(i + 1), ms(r.target_ms), ms(r.predicted_ms), ms(r.measured_ms)) for i, r in enumerate(report.rounds)]
    if rows:
        parts.append(table(("round", "table asked for at most", "predicted", "measured"), rows))
    note = "The shaded band is ± 5 %."
    if report.table_error is not None:
        note += f" Mean error of the table on networks that it was not fitted on: {percent(report.table_error)}."
    return section("Predicted and measured latency", *parts, note=note)


def _precisions(report: ReportFile) -> str:
    columns = ("file", "accuracy", "latency", "p95", "inputs/s", "size")
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
        note += f" 8 bits: ranges by `{c.method}` from {c.images} training images, weights with {weights}."
    title = "fp32 and int8" if len(report.files) > 1 else "The file"
    return section(title, table(columns, precision_rows(report)), note=escape(note))


def _decisions(report: ReportFile) -> str:
    largest = max(abs(d.accuracy) for d in report.decisions) or 1.0
    rows = []
    for decision, (name, worth, cost) in zip(report.decisions, decision_rows(report), strict=True):
        width = 50 * abs(decision.accuracy) / largest
        start = 50.0 if decision.accuracy >= 0 else 50 - width
        colour = "var(--good)" if decision.accuracy >= 0 else "var(--bad)"
        rows.append(
            f'<span>{escape(name)}</span><span class="track"><i style="left:{start:.2f}%;width:{width:.2f}%;'
            f'background:{colour}"></i></span><span class="number">{escape(worth)}</span>'
            f'<span class="number soft">{escape(cost)}</span>'
        )
    return section(
        "What decisions were worth",
        f'<div class="diverging">{"".join(rows)}</div>',
        note="Points of accuracy that the estimator gives a change, beside what the change costs on this device.",
    )


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


# -- pieces ---------------------------------------------------------------------------------------


def _legend(items: list[tuple[str, str]]) -> str:
    parts = [
        f'<span><svg viewBox="0 0 16 16" aria-hidden="true"><g class="point {kind}">{_LEGEND_SHAPES[kind]}</g></svg>'
        f"{escape(text)}</span>"
        for kind, text in items
    ]
    return f'<figcaption class="legend">{"".join(parts)}</figcaption>'


def _facts(latency_ms: float, accuracy: float) -> tuple[str, str]:
    return (f"latency {ms(latency_ms)}", f"accuracy {percent(accuracy)}")


def _both(predicted_ms: float, measured_ms: float) -> tuple[str, str]:
    return (
        f"predicted {ms(predicted_ms)}, measured {ms(measured_ms)}",
        f"off by {change(predicted_ms / measured_ms - 1)}",
    )


def _stages(architecture: str) -> tuple[str, ...]:
    """The searched stages of a network, a line each: `1: k3 e6 · k5 e3 SE`."""
    stages = [stage.split() for stage in architecture.split(" | ")]
    searched = [blocks for blocks in stages if blocks[0].startswith("ir_")]
    return tuple(
        f"stage {i + 1}: " + " · ".join(_short(block) for block in blocks) for i, blocks in enumerate(searched)
    )


def _short(block: str) -> str:
    options = dict(re.findall(r"_(se|[ke])(\d+(?:\.\d+)?)", block))
    return f"k{options.get('k', '?')} e{options.get('e', '?')}" + (" SE" if "se" in options else "")


def _stage(name: str) -> int:
    match = re.match(r"stage(\d+)/", name)
    return (int(match[1]) - 1) % 5 + 1 if match else 6 if name == "head" else 0


def _block_lines(block: BlockReport) -> list[str]:
    return [
        f"{block.name}: {block.text}",
        f"{block.in_channels} channels of {block.height}×{block.width} → {block.out_channels}, stride {block.stride}",
        f"{count(block.params)} parameters, {count(block.macs)} MACs",
        f"measured {ms(block.measured_ms)} ({percent(block.share, 1)}), table {ms(block.predicted_ms)}",
    ]


def _chips(block: BlockReport) -> str:
    shape = f"{block.in_channels}→{block.out_channels} @ {block.height}×{block.width}"
    words = [*block.text.split(", "), shape]
    return "".join(f'<span class="chip{" se" if word == "SE" else ""}">{escape(word)}</span>' for word in words)


def _origin(found: Origin | None) -> str:
    return f"{found.path}  sha256 {found.sha256[:16]}…" if found else "not known"
