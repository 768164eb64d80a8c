"""The YAML header of a model card, which model hubs read: what it is, whose it is, and what was measured.

The hub checks `license`, `datasets` and `model-index`. Data sets are therefore named only where the hub has them, a
licence and a base model only where the publisher said so.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from pydantic import JsonValue

from deploynas.report.accuracy_words import UNTRAINED
from deploynas.report.document import ReportFile, ShippedFile
from deploynas.report.latency_words import AS_IT_WAS, UNDISTURBED, median_ms, undisturbed_ms
from deploynas.report.publication import Publication

TASK = "image-classification"
# by our names; `fashion-mini` is a part of Fashion-MNIST, and says so in its own name
HUB_DATASETS = {
    "fashion-mini": "zalando-datasets/fashion_mnist",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10",
}
# whose test images are the hub's; elsewhere a part of that name would be other images than ours
_SAME_TEST_PART = ("fashion-mnist", "cifar10")
_FROM_THE_HUB = "hfds/"  # as timm names data sets that it reads from there


def card_header(report: ReportFile, publication: Publication) -> list[str]:
    """With the lines around it."""
    name = report.data.public().name
    known = hub_dataset(name)
    header: dict[str, JsonValue] = {
        **publication.hub_license(),
        **({"base_model": publication.base_model} if publication.base_model else {}),
        "library_name": "onnx",
        "pipeline_tag": TASK,
        "tags": [*_tags(), *([UNTRAINED] if report.untrained else [])],
        **({"datasets": [known]} if known and not report.untrained else {}),
    }
    results = [] if report.untrained else list(_results(report, name))
    if results:
        header |= {"metrics": ["accuracy"], "model-index": [{"name": report.title, "results": results}]}
    return ["---", yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=1000).strip(), "---", ""]


def hub_dataset(name: str) -> str | None:
    """The hub's own name of a data set; None if it is not there, or not by a name that we know."""
    if name.startswith(_FROM_THE_HUB):
        return name.removeprefix(_FROM_THE_HUB) or None
    return HUB_DATASETS.get(name)


def _tags() -> list[JsonValue]:
    return ["deploynas", "onnx", "onnxruntime", "neural-architecture-search", TASK]


def _results(report: ReportFile, name: str) -> Iterator[JsonValue]:
    """One for each part of the data: a hub shows the metrics of one part together."""
    validation = [metric for file in report.files for metric in _metrics(report, file)]
    parts: list[tuple[str, list[JsonValue]]] = [("validation", validation)]
    if report.test_accuracy is not None:
        parts.append(("test", [_accuracy(report.test_accuracy, "fp32")]))
    for split, metrics in parts:
        if metrics:
            known = HUB_DATASETS[name] if split == "test" and name in _SAME_TEST_PART else name
            dataset: dict[str, JsonValue] = {"name": name, "type": known, "split": split}
            yield {"task": {"type": TASK}, "dataset": dataset, "metrics": metrics}


def _metrics(report: ReportFile, file: ShippedFile) -> Iterator[JsonValue]:
    if file.accuracy is not None:
        yield _accuracy(file.accuracy, file.precision)
    where = f"ms, {file.precision}, batch {report.device.batch}, {report.device.threads} thread(s), {_machine(report)}"
    for latency_ms, kind in ((undisturbed_ms(report, file), UNDISTURBED), (median_ms(file), f"{AS_IT_WAS} (median)")):
        if latency_ms is not None:
            yield {"type": "latency", "value": round(latency_ms, 6), "name": f"latency {kind}, {where}"}


def _machine(report: ReportFile) -> str:
    return " ".join(report.hardware.processor.split())


def _accuracy(accuracy: float, precision: str) -> JsonValue:
    return {"type": "accuracy", "value": round(accuracy, 6), "name": f"top-1, {precision}"}
