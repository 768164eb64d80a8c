"""One bundle for one device: networks are exported, verified and timed until one keeps the budget."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.export import predict
from deploynas.export.budget import Attempt, within_budget
from deploynas.export.bundle import MANIFEST, Origin, check_manifest, staged, write_manifest
from deploynas.export.calibration import Calibration
from deploynas.export.metadata import Metadata
from deploynas.export.network_file import Fp32File, Int8File, fp32_file, int8_file
from deploynas.export.triton import write_repository
from deploynas.files import content_hash, write_bytes, write_json
from deploynas.graph import OPSET
from deploynas.latency.bench import BenchResult, bench
from deploynas.progress import OnProgress, silent
from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.markdown import markdown
from deploynas.shipping.candidates import Candidates
from deploynas.shipping.evidence import Evidence, report_document
from deploynas.shipping.images import calibration_subset, open_batches, preprocessing, stream
from deploynas.shipping.sources import KnownTable, Sources
from deploynas.space.notation import to_text
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.training.batches import Batches

MODEL = {"fp32": "model.onnx", "int8": "model.int8.onnx"}


@dataclass(frozen=True)
class Wishes:
    """How a bundle is to be made."""

    calibration: Calibration | None = None  # None: no 8-bit file, unless the device asks for one
    max_accuracy_drop: float = 0.01
    opset: int = OPSET
    triton: bool = False
    rounds: int = 3
    runs: int = 300  # timed inferences a file
    frontier_points: int = 5  # networks of the frontier that are measured for the report


@dataclass(frozen=True)
class Exported:
    """One network, exported and timed, before anyone knows whether it will be shipped."""

    network: Path
    checkpoint: Checkpoint
    fp32: Fp32File
    int8: Int8File | None
    benches: dict[str, BenchResult]  # by precision


@dataclass(frozen=True)
class Delivery:
    folder: Path
    report: ReportFile


def deliver(
    candidates: Candidates,
    budget_ms: float | None,
    data: str,
    out: Path,
    wishes: Wishes,
    on_progress: OnProgress = silent,
    settings: dict[str, Any] | None = None,
) -> Delivery:
    """Write a bundle to `out`, or raise and leave nothing; `GateError` when the budget is not met.

    `settings` is what else decided the outcome (a recipe), remembered for `delivered`.
    """
    device, rounds = candidates.device, list[Attempt[Exported]]()
    batches = open_batches(data, candidates.space)
    with staged(out) as stage:

        def attempt(target_ms: float) -> Attempt[Exported]:
            network = candidates.next(target_ms)
            on_progress(min(0.8, 0.1 + 0.3 * len(rounds)), "exporting and measuring")
            made = _export(network, batches, device, stage, wishes)
            table = candidates.table
            predicted = table.table.predict(_architecture(made, candidates)) if table else None
            tried = Attempt(target_ms, predicted, made.benches[device.precision].measurement.latency_ms, made)
            rounds.append(tried)
            return tried

        if budget_ms is None:
            attempt(float("inf"))
        else:
            within_budget(budget_ms, attempt, wishes.rounds)
        on_progress(0.85, "measuring networks of the frontier")
        evidence = Evidence(candidates, budget_ms, tuple(rounds), batches, wishes.frontier_points)
        report = report_document(evidence)
        on_progress(0.97, "writing")
        _fill(stage, rounds[-1].what, report, device, batches, wishes.triton)
        lineage = candidates.sources.lineage(rounds[-1].what.network, candidates.table)
        about = {"device": device.describe(), "data": batches.data.describe(), "asked": _asked(wishes, settings)}
        write_manifest(stage, lineage, about)
    return Delivery(out, report)


def delivered(
    folder: Path,
    sources: Sources,
    table: KnownTable,
    budget_ms: float,
    wishes: Wishes,
    settings: dict[str, Any] | None = None,
) -> ReportFile | None:
    """The report of a bundle that was made from the same files for the same wishes; None if there is none."""
    if not (folder / MANIFEST).exists():
        return None
    manifest, report = check_manifest(folder), ReportFile.load(folder)
    wanted = sources.lineage(None, table)
    same = all(
        _sha256(manifest.lineage.get(name)) == _sha256(wanted[name]) for name in ("table", "estimator", "supernet")
    )
    same = same and manifest.about.get("asked") == _asked(wishes, settings)
    return report if same and report.budget_ms == budget_ms else None


def _asked(wishes: Wishes, settings: dict[str, Any] | None) -> str:
    return content_hash({"wishes": asdict(wishes), "settings": settings or {}})


def _sha256(found: Origin | None) -> str | None:
    return found.sha256 if found else None


def _architecture(made: Exported, candidates: Candidates) -> Any:
    assert made.checkpoint.architecture is not None
    return candidates.space.architecture(made.checkpoint.architecture.choices)


def _export(network: Path, batches: Batches, device: Device, stage: Path, wishes: Wishes) -> Exported:
    checkpoint = load_checkpoint(network)
    architecture, data = checkpoint.architecture, batches.data
    if architecture is None:
        raise InputError(f"{network} holds a supernet, expected one network", hint="`deploynas finetune` makes one")
    metadata = Metadata(
        preprocessing=preprocessing(data, architecture.space),
        labels=list(data.classes),
        provenance={key: checkpoint.about.get(key) for key in ("data", "validation_accuracy", "lineage", "teacher")},
    )
    validation = stream(batches, data.validation)
    fp32 = fp32_file(checkpoint.model, architecture, metadata, validation, wishes.opset)
    contents = {"fp32": fp32.content}
    calibration = wishes.calibration or (Calibration() if device.precision == "int8" else None)
    int8 = None
    if calibration:
        calibration_images = stream(batches, calibration_subset(data, calibration.share))
        drop, opset = wishes.max_accuracy_drop, wishes.opset
        int8 = int8_file(
            checkpoint.model, architecture, metadata, fp32, validation, calibration_images, calibration, drop, opset
        )
        contents["int8"] = int8.content
    benches = {}
    for precision, content in contents.items():
        path = stage / MODEL[precision]
        write_bytes(path, content)
        benches[precision] = bench(path, device, runs=wishes.runs, space=architecture.space)
    return Exported(network, checkpoint, fp32, int8, benches)


def _fill(stage: Path, made: Exported, report: ReportFile, device: Device, batches: Batches, with_triton: bool) -> None:
    """Everything but the models, which are there, and the manifest, which comes last."""
    architecture = made.checkpoint.architecture
    assert architecture is not None
    space = architecture.space
    document = {
        "schema": "deploynas/architecture",
        "schema_version": 1,
        "space": space.describe(),
        "space_hash": space.hash,
        "architecture": to_text(architecture),
        "choices": [list(choice) for choice in architecture.choices],
    }
    write_json(stage / "architecture.json", document)
    for precision, result in made.benches.items():
        write_json(stage / f"bench.{precision}.json", result.model_dump(by_alias=True))
    shutil.copyfile(Path(predict.__file__), stage / "predict.py")
    if with_triton:
        for precision, path in MODEL.items():
            if precision in made.benches:
                name = space.name if precision == "fp32" else f"{space.name}_int8"
                content = (stage / path).read_bytes()
                write_repository(stage / "triton", name, content, space, list(batches.data.classes), device)
    report.save(stage / "report.json")
    (stage / "report.html").write_text(html(report), encoding="utf-8")
    (stage / "report.md").write_text(markdown(report), encoding="utf-8")
    (stage / "README.md").write_text(card(report, with_triton), encoding="utf-8")
