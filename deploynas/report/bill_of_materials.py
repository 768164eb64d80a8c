"""The model as a CycloneDX 1.6 document: its files, the data, what it was made from, and the measured figures.

https://cyclonedx.org/docs/1.6/json: a `machine-learning-model` with a model card. The document says nothing that the
report does not, and its serial number is made from its content, so equal bundles have equal documents.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from deploynas import __version__
from deploynas.provenance import Origin
from deploynas.report.accuracy_words import UNTRAINED_MEANS
from deploynas.report.card_header import TASK, hub_dataset
from deploynas.report.document import ReportFile, ShippedFile
from deploynas.report.drawing import notation_of
from deploynas.report.latency_words import AS_IT_WAS, UNDISTURBED, median_ms, undisturbed_ms
from deploynas.report.publication import Publication

BILL = "model.cdx.json"
_SERIAL_NUMBERS = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/deploynas")  # any fixed one would do
_DATA, _MODEL = "data", "model"
_ANCESTORS = ("network", "supernet", "imported")  # what weights came from, the nearest first
Record = dict[str, JsonValue]


def bill_of_materials(report: ReportFile, publication: Publication, hashes: Mapping[str, str]) -> Record:
    """`hashes`: SHA-256 of each shipped model, by its path in the bundle."""
    others = [_component(f"lineage/{role}", role, file) for role, file in _lineage(report, ancestors=False)]
    components = others if report.untrained else [_data(report), *others]
    made_from: list[JsonValue] = [component["bom-ref"] for component in components]
    document: Record = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": report.created,
            "tools": {"components": [{"type": "application", "name": "deploynas", "version": __version__}]},
            "component": _model(report, publication, hashes),
        },
        "components": [*components],
        "dependencies": [{"ref": _MODEL, "dependsOn": made_from}],
    }
    content = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return {**document, "serialNumber": uuid.uuid5(_SERIAL_NUMBERS, content).urn}


def _model(report: ReportFile, publication: Publication, hashes: Mapping[str, str]) -> Record:
    ancestors: list[JsonValue] = [_component(f"lineage/{role}", role, file) for role, file in _lineage(report)]
    if publication.base_model:
        ancestors.append({"type": "machine-learning-model", "name": publication.base_model})
    return {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": report.title,
        "description": f"an image classifier for {len(report.data.classes)} classes, found in the space "
        f"`{report.space}` for the device `{report.device.name}`",
        "hashes": [{"alg": "SHA-256", "content": hashes[report.shipped.path]}],
        **({"licenses": [{"expression": publication.license}]} if publication.license else {}),
        **({"pedigree": {"ancestors": ancestors}} if ancestors else {}),
        "components": [_file(report, file, hashes[file.path]) for file in report.files],
        "modelCard": _model_card(report),
    }


def _file(report: ReportFile, file: ShippedFile, sha256: str) -> Record:
    to_deploy = file is report.shipped
    said = {"precision": file.precision, "size_bytes": str(file.size_bytes), "to_deploy": str(to_deploy).lower()}
    return {
        "type": "file",
        "bom-ref": f"file/{file.path}",
        "name": file.path,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        "properties": _properties(said),
    }


def _model_card(report: ReportFile) -> Record:
    height, width = (report.blocks[0].height, report.blocks[0].width) if report.blocks else (None, None)
    sizes = {} if height is None else {"input": f"{height}x{width}"}
    hardware, device = report.hardware, report.device
    said = {
        **sizes,
        "architecture": report.architecture,
        "parameters": str(report.params),
        "multiply_accumulates": str(report.macs),
        "device": device.name,
        "provider": device.provider_name,
        "batch": str(device.batch),
        "threads": str(device.threads),
        "processor": hardware.processor,
        **({} if report.budget_ms is None else {"budget_ms": repr(report.budget_ms), "budget_about": device.budget}),
        **({} if report.outcome is None else {"outcome": report.outcome}),
        **{f"measured_with:{name}": version for name, version in report.versions.items()},
    }
    limits: list[JsonValue] = [*report.warnings]
    if report.untrained and not any(UNTRAINED_MEANS in warning for warning in report.warnings):
        limits.insert(0, UNTRAINED_MEANS)
    return {
        "modelParameters": {
            **({} if report.untrained else {"approach": {"type": "supervised"}}),
            "task": TASK,
            "architectureFamily": "convolutional neural network",
            "modelArchitecture": f"{notation_of(report.architecture)}: {report.space}",
            **({} if report.untrained else {"datasets": [{"ref": _DATA}]}),
            "inputs": [{"format": "image"}],
            "outputs": [{"format": "logits of classes"}],
        },
        "quantitativeAnalysis": {"performanceMetrics": [*_metrics(report)]},
        **({"considerations": {"technicalLimitations": limits}} if limits else {}),
        "properties": _properties(said),
    }


def _metrics(report: ReportFile) -> Iterator[JsonValue]:
    """Values are strings in this format; latencies are milliseconds."""
    for file in report.files:
        if file.accuracy is not None:
            yield {"type": "accuracy, top-1", "value": repr(file.accuracy), "slice": f"validation, {file.precision}"}
        yield from _latencies(report, file)
    if report.test_accuracy is not None:
        yield {"type": "accuracy, top-1", "value": repr(report.test_accuracy), "slice": "test, fp32"}


def _latencies(report: ReportFile, file: ShippedFile) -> Iterator[Record]:
    among = f"{file.precision}, batch {report.device.batch}, {report.device.threads} thread(s)"
    intervals = {} if file.timing is None else {
        UNDISTURBED: file.timing.undisturbed.interval_ms,
        AS_IT_WAS: file.timing.clock.p50_interval_ms,
    }  # fmt: skip
    for kind, latency_ms in ((UNDISTURBED, undisturbed_ms(report, file)), (AS_IT_WAS, median_ms(file))):
        if latency_ms is None:
            continue
        bounds: Record = {}
        if kind in intervals:
            low, high = intervals[kind]
            bounds = {"confidenceInterval": {"lowerBound": repr(low), "upperBound": repr(high)}}
        statistic = "" if kind == UNDISTURBED else ", median"
        yield {"type": f"latency in ms, {kind}{statistic}", "value": repr(latency_ms), "slice": among, **bounds}


def _data(report: ReportFile) -> Record:
    data = report.data.public()
    known = hub_dataset(data.name)
    images = {"train": data.train_images, "validation": data.validation_images, "test": data.test_images}
    said = {f"{part}_images": str(count) for part, count in images.items()}
    said |= {"split_hash": data.split_hash} if data.split_hash else {}
    said |= {f"class:{i}": label for i, label in enumerate(data.classes)}
    link: Record = {"url": f"https://huggingface.co/datasets/{known}"} if known else {}
    return {
        "type": "data",
        "bom-ref": _DATA,
        "name": data.name,
        "data": [{"type": "dataset", "name": data.name, "contents": {**link, "properties": _properties(said)}}],
    }


def _lineage(report: ReportFile, ancestors: bool = True) -> Iterator[tuple[str, Origin]]:
    """Models that weights came from, or the other files: table, estimator, search."""
    if ancestors:
        roles = [role for role in _ANCESTORS if role in report.lineage]
    else:
        roles = [role for role in report.lineage if role not in _ANCESTORS]
    for role in roles:
        file = report.lineage[role]
        if file is not None:
            yield role, file.public()


def _component(reference: str, role: str, file: Origin) -> Record:
    return {
        "type": "machine-learning-model" if role in _ANCESTORS else "data",
        "bom-ref": reference,
        "name": file.path,
        "description": role,
        "hashes": [{"alg": "SHA-256", "content": file.sha256}],
    }


def _properties(said: Mapping[str, str]) -> list[JsonValue]:
    return [{"name": f"deploynas:{name}", "value": value} for name, value in said.items()]
