"""One fine-tuned network as ONNX files, verified and timed on a device, before anyone knows whether it is shipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.export.calibration import Calibration
from deploynas.export.metadata import Metadata
from deploynas.export.network_file import (
    Fp16File,
    Fp32File,
    Int8File,
    Int8Wishes,
    TorchNetwork,
    fp16_file,
    fp32_file,
    int8_file,
)
from deploynas.files import write_bytes
from deploynas.graph import DEFAULT_FORMS, OPSET, OperatorForms
from deploynas.latency.bench import BenchResult, Case, bench_together
from deploynas.pipeline.images import calibration_subset, preprocessing, stream
from deploynas.pipeline.limits import require_within
from deploynas.pipeline.patience import patiently
from deploynas.providers import CPU
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord

MODEL = {"fp32": "model.onnx", "fp16": "model.fp16.onnx", "int8": "model.int8.onnx"}


@dataclass(frozen=True)
class Wishes:
    """How a bundle is to be made."""

    calibration: Calibration | None = None  # None: no 8-bit file, unless the device asks for one
    max_accuracy_drop: float = 0.01  # of files with fewer bits than fp32
    opset: int = OPSET
    triton: bool = False
    rounds: int = 3
    runs: int = 300  # timed inferences per file
    frontier_points: int = 5  # networks of the frontier that are measured for the report
    compare: int = 0  # random networks of the same latency that are fine-tuned too, for the report
    patience_s: float = 0.0  # to wait for a quieter moment, when a busy machine misses a budget that it would keep


@dataclass(frozen=True)
class NetworkFiles:
    """The files of one network: fp32 always, the others where they were asked for."""

    fp32: Fp32File
    fp16: Fp16File | None = None
    int8: Int8File | None = None

    def by_precision(self) -> dict[str, Fp32File | Fp16File | Int8File]:
        """Fp32 first, which the others are compared with."""
        every = {"fp32": self.fp32, "fp16": self.fp16, "int8": self.int8}
        return {precision: file for precision, file in every.items() if file is not None}


@dataclass(frozen=True)
class Exported:
    network: Path
    checkpoint: Checkpoint
    files: NetworkFiles
    benches: dict[str, BenchResult]  # by precision
    waits: tuple[BenchResult, ...] = ()  # what was measured before them, on a busier machine, at the device's precision

    @property
    def architecture(self) -> Architecture:
        assert self.checkpoint.architecture is not None
        return self.checkpoint.architecture

    @property
    def record(self) -> CheckpointRecord:
        return CheckpointRecord.of(self.checkpoint)


def export_network(
    network: Path,
    batches: Batches,
    device: Device,
    stage: Path,
    wishes: Wishes,
    budget_ms: float | None = None,
    forms: OperatorForms = DEFAULT_FORMS,
) -> Exported:
    """Write, verify and time the files of a network; `GateError` if the device file does not allow it.

    `forms`: what the device's table chose, for the file in the device's precision. Other files have the default.
    """
    written = write_network(network, batches, device, stage, wishes, forms)
    cases = [Case(path) for path in written.paths.values()]

    def measured() -> dict[str, BenchResult]:
        return dict(zip(written.paths, bench_together(cases, device, runs=wishes.runs).results, strict=True))

    benches, waits = patiently(measured, device, budget_ms, wishes.patience_s)
    busier = tuple(made[device.precision] for made in waits)
    return Exported(network, written.checkpoint, written.files, benches, busier)


@dataclass(frozen=True)
class Written:
    """A network's files, verified and not yet timed."""

    checkpoint: Checkpoint
    files: NetworkFiles
    paths: dict[str, Path]  # by precision, of those that the provider can run


def write_network(
    network: Path,
    batches: Batches,
    device: Device,
    stage: Path,
    wishes: Wishes,
    forms: OperatorForms = DEFAULT_FORMS,
) -> Written:
    """Write and verify the files of a network into a folder; `GateError` if the device file does not allow it."""
    checkpoint = load_checkpoint(network)
    architecture, data = checkpoint.architecture, batches.data
    if architecture is None:
        raise InputError(f"{network} holds a supernet, expected one network", hint="`deploynas finetune` makes one")
    batches = batches.at_the_size_of(architecture)
    require_within(device, architecture)
    record = CheckpointRecord.of(checkpoint)
    metadata = Metadata(
        preprocessing=preprocessing(data, batches.space),
        labels=list(data.classes),
        data=record.data.public() if record.data else None,
        validation_accuracy=record.validation_accuracy,
        lineage=record.lineage.public(),
        teacher=record.teacher,
        provider=device.provider_name,
        untrained=bool(record.untrained),
    )
    source = TorchNetwork(checkpoint.model, architecture, metadata, wishes.opset, {device.precision: forms})
    files = _files_for(device, source, batches, wishes, bool(record.untrained))
    # what the provider cannot compute in is written for comparison alone, and not shipped
    made = {name: file for name, file in files.by_precision().items() if name not in device.record.refused}
    for precision, file in made.items():
        write_bytes(stage / MODEL[precision], file.content)
    return Written(checkpoint, files, {precision: stage / MODEL[precision] for precision in made})


def _files_for(device: Device, network: TorchNetwork, batches: Batches, wishes: Wishes, random: bool) -> NetworkFiles:
    """What the device wants and what was wished for besides; `random` weights have no accuracy to lose."""
    validation = stream(batches, batches.data.validation)
    most = 1.0 if random else wishes.max_accuracy_drop
    fp32, fp16, int8 = fp32_file(network, validation), None, None
    if device.precision == "fp16":
        fp16 = fp16_file(network, fp32, validation, most)
    calibration = wishes.calibration or (Calibration() if device.precision == "int8" else None)
    if calibration:
        images = stream(batches, calibration_subset(batches.data, calibration.share))
        device.model_copy(update={"precision": "int8"}).require_precision()
        on_cpu = device.provider_name == CPU
        how = Int8Wishes(calibration, images, most, device.quantized, on_cpu)
        int8 = int8_file(network, fp32, validation, how)
    return NetworkFiles(fp32, fp16, int8)
