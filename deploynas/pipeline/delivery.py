"""One bundle for one device: networks are exported, verified and timed until one keeps the budget."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from deploynas.export import predict
from deploynas.export.budget import Attempt, within_budget
from deploynas.export.bundle import ManifestAbout, staged, write_manifest
from deploynas.export.model_package import PACKAGE
from deploynas.export.signature import require_signer, sign_bundle
from deploynas.files import sha256_of, write_json
from deploynas.latency.session_record import as_measured
from deploynas.outcome import about
from deploynas.pipeline.candidates import Candidates
from deploynas.pipeline.exported import Exported, Wishes, export_network
from deploynas.pipeline.packages import TRITON, write_ort_package, write_triton
from deploynas.pipeline.report_document import Shipment, report_document
from deploynas.progress import OnProgress, silent
from deploynas.report.bill_of_materials import BILL, bill_of_materials
from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.markdown import markdown
from deploynas.training.batches import Batches


@dataclass(frozen=True)
class Order:
    """What a bundle is wanted for: the budget, the images it is judged on, and how it is made."""

    budget_ms: float | None
    batches: Batches
    wishes: Wishes


@dataclass(frozen=True)
class Delivery:
    """A bundle: its folder, and what its report says."""

    folder: Path
    report: ReportFile


def deliver(candidates: Candidates, order: Order, out: Path, on_progress: OnProgress = silent) -> Delivery:
    """Write a bundle to `out`, or raise and leave nothing; `GateError` when a budget is not met."""
    device, table, batches = candidates.device, candidates.table, order.batches
    if order.wishes.sign:
        require_signer(order.wishes.sign)
    rounds = list[Attempt[Exported]]()
    with staged(out) as stage:

        def attempt(target_ms: float) -> Attempt[Exported]:
            network = candidates.next(target_ms)
            on_progress(min(0.8, 0.1 + 0.3 * len(rounds)), "exporting and measuring")
            made = export_network(network, batches, device, stage, order.wishes, order.budget_ms, candidates.forms)
            predicted = table.table.predict(made.architecture) if table else None
            tried = Attempt(target_ms, predicted, about(made.timed.timing, device.budget), made)
            rounds.append(tried)
            return tried

        if order.budget_ms is None:
            attempt(float("inf"))
        else:
            within_budget(order.budget_ms, attempt, order.wishes.rounds)
        shipped = rounds[-1].what
        shipment = Shipment(candidates, order.budget_ms, tuple(rounds), batches, order.wishes, on_progress)
        report = report_document(shipment)
        on_progress(0.97, "writing")
        _fill(stage, shipped, report, order.wishes)
        lineage = candidates.sources.lineage(shipped.network, shipped.record.lineage, table)
        opened_on = device.opened_for(shipped.timed.gated)
        session = as_measured(opened_on, shipped.timed.gated_bench.provenance)
        about_it = ManifestAbout(device=device, data=batches.data.describe(), session=session)
        write_manifest(stage, lineage, about_it, report.shipped.path)
        if order.wishes.sign:
            sign_bundle(stage, order.wishes.sign)
    return Delivery(out, report)


def _fill(stage: Path, made: Exported, report: ReportFile, wishes: Wishes) -> None:
    """Everything but the models, which are there, and the manifest, which comes last."""
    architecture, space = made.architecture, made.architecture.space
    document = {
        "schema": "deploynas/architecture",
        "schema_version": 1,
        "space": space.describe(),
        "space_hash": space.hash,
        "architecture": str(architecture),
        "choices": [list(choice) for choice in architecture.choices],
    }
    write_json(stage / "architecture.json", document)
    for precision, result in made.benches.items():
        write_json(stage / f"bench.{precision}.json", result.model_dump(by_alias=True))
    shutil.copyfile(Path(predict.__file__), stage / "predict.py")
    if wishes.triton:
        write_triton(stage, made, report)
    if wishes.ort_package:
        write_ort_package(stage, made, report)
    report.save(stage / "report.json")
    (stage / "report.html").write_text(html(report), encoding="utf-8")
    (stage / "report.md").write_text(markdown(report), encoding="utf-8")
    beside = [folder for folder in (TRITON, PACKAGE) if (stage / folder).is_dir()]
    (stage / "README.md").write_text(card(report, wishes.publication, beside), encoding="utf-8")
    hashes = {file.path: sha256_of(stage / file.path) for file in report.files}
    write_json(stage / BILL, bill_of_materials(report, wishes.publication, hashes))
