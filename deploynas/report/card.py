"""The model card: `README.md` with the YAML header that model hubs read."""

from __future__ import annotations

from collections.abc import Collection

from deploynas.provenance import DataRecord
from deploynas.report.accuracy_words import UNTRAINED_MEANS
from deploynas.report.card_header import card_header
from deploynas.report.document import ReportFile
from deploynas.report.drawing import notation_of
from deploynas.report.gain_words import headline
from deploynas.report.latency_words import AS_IT_WAS, UNDISTURBED, held, median_ms, undisturbed_ms
from deploynas.report.markdown import (
    PRECISION_COLUMNS,
    measured_lines,
    precision_rows,
    summary_rows,
    table_lines,
    verdict_lines,
)
from deploynas.report.numbers import ms
from deploynas.report.publication import Publication


def card(report: ReportFile, publication: Publication | None = None, beside: Collection[str] = ()) -> str:
    """`beside`: folders of the bundle that other runtimes read, see `_SERVED`."""
    publication = publication or Publication()
    limits = ["## Limits", "", *(f"- {warning}" for warning in report.warnings), ""] if report.warnings else []
    return "\n".join(
        [
            *card_header(report, publication),
            *_summary(report),
            *_use(report.shipped.path, beside),
            *_measured(report),
            *(_untrained() if report.untrained else _training(report.data)),
            *_architecture(report),
            *limits,
        ]
    )


def _summary(report: ReportFile) -> list[str]:
    shipped, device = report.shipped, report.device
    found = held(report)
    budget = f" The budget of {found.budget} is {found.phrase}." if found else ""
    kind = "An untrained image classifier" if report.untrained else "An image classifier"
    warned = [f"**{UNTRAINED_MEANS[0].upper()}{UNTRAINED_MEANS[1:]}.**", ""] if report.untrained else []
    return [
        f"# {report.title}",
        "",
        *warned,
        f"{kind} for {len(report.data.classes)} classes, found by architecture search in the space "
        f"`{report.space}` ({report.space_size} networks) for the device `{device.name}`: "
        f"{ms(undisturbed_ms(report, shipped))} {UNDISTURBED}, {ms(median_ms(shipped))} (median) {AS_IT_WAS}, for a "
        f"batch of {device.batch}, measured whole on {report.hardware.processor} with {device.threads} thread(s), "
        f"{report.created}.{budget}",
        "",
        *_gain(report),
        *table_lines(("", "predicted", "measured", "limit"), summary_rows(report)),
        "",
        *table_lines(PRECISION_COLUMNS, precision_rows(report)),
        "",
        *([*verdict_lines(report), ""] if report.verdicts else []),
    ]


def _gain(report: ReportFile) -> list[str]:
    """Of fine-tuned networks alone: a card is about the weights that are shipped."""
    return [f"{headline(report)}.", ""] if report.gain and report.gain.fine_tuned else []


_SERVED = {
    "triton": "`triton/` is a Triton model repository: `tritonserver --model-repository=triton`.",
    "ort-package": "`ort-package/` is a model package of ONNX Runtime, with the session options that were measured; "
    "the recommended variant stands first.",
}


def _use(model: str, beside: Collection[str]) -> list[str]:
    return [
        "## Use",
        "",
        "```",
        "pip install onnxruntime numpy pillow",
        "python predict.py image.png" + ("" if model == "model.onnx" else f" --model {model}"),
        "```",
        "",
        "Preprocessing, labels, architecture and provenance are in the model's `metadata_props`. Any batch works.",
        *(line for folder, served in _SERVED.items() if folder in beside for line in ("", served)),
        "",
    ]


def _measured(report: ReportFile) -> list[str]:
    return ["## How it was measured", "", *measured_lines(report), ""]


def _training(data: DataRecord) -> list[str]:
    tested = f", and of {data.test_images} test images, which nothing used" if data.test_images else ""
    return [
        "## Training and data",
        "",
        f"Weights inherited from a one-shot supernet and fine-tuned on {data.train_images} images of "
        f"`{data.public().name}`; accuracy is of {data.validation_images} validation images, which the search used "
        f"too{tested}.",
        "",
    ]


def _untrained() -> list[str]:
    return [
        "## Training and data",
        "",
        "None. The weights are random; images that the export needed were random too, unless a data set was named. "
        "Train the architecture below, or a supernet of its space (`deploynas train`), and export again.",
        "",
    ]


def _architecture(report: ReportFile) -> list[str]:
    pieces = "node by node" if report.architecture.startswith("|") else "block by block"
    return [
        "## Architecture",
        "",
        f"{notation_of(report.architecture)}, {pieces}:",
        "",
        "```",
        report.architecture.replace(" | ", "\n").replace("+", "\n"),
        "```",
        "",
        "`report.html` shows it block by block; `manifest.json` has the SHA-256 of everything and the lineage, "
        "`model.cdx.json` the same as a CycloneDX document.",
        "",
    ]
