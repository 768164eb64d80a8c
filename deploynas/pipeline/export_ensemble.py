"""An ensemble that a search found, as files: written, checked against its members, timed, and held to its budget.

Members in a row (`serial`) become one graph that averages; members at once (`parallel`) a file each, since a runtime
computes one graph on one set of processors. Weights are those that members inherit from the supernet, or fine-tuned
ones. As with a single network, nothing is left behind if the budget is missed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from deploynas.device import Device
from deploynas.errors import GateError, InputError
from deploynas.export import predict
from deploynas.export.bundle import ManifestAbout, staged, write_manifest
from deploynas.export.ensemble_file import EnsembleFile, ensemble_file
from deploynas.export.metadata import Metadata
from deploynas.export.network_file import Fp32File, TorchNetwork, fp32_file
from deploynas.export.signature import require_signer, sign_bundle
from deploynas.files import write_bytes, write_json
from deploynas.graph import DEFAULT_FORMS, network_metadata
from deploynas.latency.bench import BenchResult, Case, bench_together
from deploynas.latency.session_record import as_measured
from deploynas.outcome import about, outcome_of
from deploynas.pipeline.exported import MODEL
from deploynas.pipeline.images import preprocessing, stream
from deploynas.pipeline.patience import patiently
from deploynas.pipeline.sources import Sources
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.pipeline.verdict import TimedFiles
from deploynas.progress import OnProgress, silent
from deploynas.provenance import origin
from deploynas.search.ensemble_record import EnsembleRecord
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.training.finetune import NETWORK

RESULT = "ensemble.json"


@dataclass(frozen=True)
class EnsembleExport:
    """What was written, and what it took on the device."""

    folder: Path
    document: SearchFile
    files: tuple[BenchResult, ...]  # one, or one for each member
    checked: EnsembleFile | None  # the averaging graph, where there is one
    strict: bool  # whether the budget is held on the machine as it was, too


@dataclass(frozen=True)
class EnsembleShipment:
    """`fine_tuned`: a network of `finetune` for each member, in their order; none: weights of the supernet."""

    found: Path
    supernet: TrainedSupernet
    device: Device
    fine_tuned: Sequence[Path] = ()
    budget_ms: float | None = None  # None: that of the search
    patience_s: float = 0.0
    runs: int = 300
    sign: str | None = None  # the file of a private key

    @cached_property
    def document(self) -> SearchFile:
        document = SearchFile.load(self.found)
        document.the_space().require_hash(self.supernet.space.hash, f"{self.supernet.path}: its supernet")
        return document

    @property
    def ensemble(self) -> EnsembleRecord:
        if self.document.ensemble is None:
            raise InputError(f"{self.found}: no ensemble in it", hint="`deploynas search --ensemble N` writes one")
        return self.document.ensemble

    @property
    def budget(self) -> float:
        return self.budget_ms or self.ensemble.budget_ms

    def deliver(self, out: Path, on_progress: OnProgress = silent) -> EnsembleExport:
        """Write a folder, or raise and leave nothing; `GateError` if the budget is missed."""
        if self.device.precision != "fp32":
            raise InputError(
                f"ensembles are exported in fp32, device `{self.device.name}` wants {self.device.precision}"
            )
        if self.sign:
            require_signer(self.sign)
        with staged(out) as stage:
            members = list[Fp32File]()
            for number, network in enumerate(self._networks()):
                on_progress(0.1 + 0.4 * number / len(self.document.networks), f"writing member {number + 1}")
                members.append(fp32_file(network, self._images))
            checked = self._written(members, stage)
            on_progress(0.6, "measuring")
            files = self._timed(sorted(stage.glob("*.onnx")))
            strict = self._require_budget(files)
            self._fill(stage, files)
            if self.sign:
                sign_bundle(stage, self.sign)
            return EnsembleExport(out, self.document, files, checked, strict)

    def _networks(self) -> list[TorchNetwork]:
        table = Sources().with_search(self.found).table_of(self.device, self.supernet.space)
        forms = table.table.forms if table else DEFAULT_FORMS
        return [
            TorchNetwork(model.model, architecture, self._metadata(), forms={"fp32": forms})
            for model, architecture in zip(self._weights(), self.document.architectures(), strict=True)
        ]

    def _weights(self) -> list[Checkpoint]:
        wanted = self.document.architectures()
        if not self.fine_tuned:
            space = self.supernet.space
            return [Checkpoint(self.supernet.cut_out(network), space, network) for network in wanted]
        if len(self.fine_tuned) != len(wanted):
            raise InputError(f"the ensemble has {len(wanted)} members, {len(self.fine_tuned)} networks were given")
        return [self._tuned(path, network) for path, network in zip(self.fine_tuned, wanted, strict=True)]

    def _tuned(self, path: Path, wanted: Architecture) -> Checkpoint:
        checkpoint = load_checkpoint(path / f"{NETWORK}.safetensors" if path.is_dir() else path)
        if checkpoint.architecture != wanted:
            number = self.document.architectures().index(wanted) + 1
            raise InputError(
                f"{path} is not member {number} of {self.found}",
                hint=f"`deploynas finetune {self.found} --pick {number}`, and `--member` in the order of the members",
            )
        return checkpoint

    def _metadata(self) -> Metadata:
        data = self.supernet.data
        return Metadata(
            preprocessing=preprocessing(data, self.supernet.space),
            labels=list(data.classes),
            data=data.describe().public(),
            provider=self.device.provider_name,
        )

    def _images(self) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        return stream(self.supernet.batches, self.supernet.data.validation)()

    def _written(self, members: Sequence[Fp32File], stage: Path) -> EnsembleFile | None:
        if self.ensemble.running == "parallel":
            for number, member in enumerate(members, start=1):
                write_bytes(stage / f"member-{number}.onnx", member.content)
            return None
        file = ensemble_file([member.content for member in members], self._images, self._about())
        write_bytes(stage / MODEL["fp32"], file.content)
        return file

    def _about(self) -> dict[str, str]:
        """What the averaging graph says about itself: as one network does, with all its members."""
        networks, space = self.document.architectures(), self.supernet.space
        return {
            **network_metadata(space, networks[0]),
            "architecture": json.dumps([str(network) for network in networks]),
            **self._metadata().props("fp32"),
        }

    def _timed(self, paths: Sequence[Path]) -> tuple[BenchResult, ...]:
        device, made = self.device, list[tuple[BenchResult, ...]]()

        def measured() -> TimedFiles:
            made.append(bench_together([Case(path) for path in paths], device, runs=self.runs).results)
            return TimedFiles({device.precision: self._slowest(made[-1])}, device.precision)

        calmest, _ = patiently(measured, device, self.budget, self.patience_s)
        return next(results for results in made if self._slowest(results) is calmest.gated_bench)

    def _slowest(self, results: Sequence[BenchResult]) -> BenchResult:
        return max(results, key=self._latency)

    def _latency(self, result: BenchResult) -> float:
        assert result.timing, "it was measured just now"
        return about(result.timing, self.device.budget)

    def _require_budget(self, files: Sequence[BenchResult]) -> bool:
        slowest = self._slowest(files)
        assert slowest.timing, "it was measured just now"
        outcome = outcome_of(slowest.timing, self.budget, self.device.budget)
        if outcome == "missed":
            raise GateError(
                f"the budget of {self.budget:.4g} ms is not met: {slowest.model} took {self._latency(slowest):.4g} ms",
                hint="averaging is not in the table: search with a smaller budget, `--latency TABLE:MS`",
            )
        return outcome == "held"

    def _fill(self, stage: Path, files: Sequence[BenchResult]) -> None:
        """Everything but the models, which are there."""
        self.ensemble.measured_latency_ms = self._latency(self._slowest(files))
        for network, result in zip(self.document.networks, files, strict=False):
            if len(files) > 1:
                network.measured_latency_ms = self._latency(result)
        self.document.save(stage / RESULT)
        for result in files:
            write_json(stage / f"bench.{Path(result.model).stem}.json", result.model_dump(by_alias=True))
        if self.ensemble.running == "serial":
            shutil.copyfile(Path(predict.__file__), stage / "predict.py")
        sources = {"search": origin(self.found), "supernet": origin(self.supernet.path)}
        lineage = {name: file.public() if file else None for name, file in sources.items()}
        session = as_measured(self.device, files[0].provenance)
        about_it = ManifestAbout(device=self.device, data=self.supernet.data.describe().public(), session=session)
        write_manifest(stage, lineage, about_it)
