"""One fine-tuned network as ONNX files, verified and timed on a device, before anyone knows whether it is shipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deploynas.device import Device
from deploynas.errors import GateError, InputError
from deploynas.export.calibration import Calibration
from deploynas.export.metadata import Metadata
from deploynas.export.network_file import TorchNetwork, fp16_file, fp32_file
from deploynas.files import write_bytes
from deploynas.graph import DEFAULT_FORMS, OPSET, OperatorForms
from deploynas.latency.bench import BenchResult, Case, bench_together
from deploynas.latency.facts import lacking_instructions
from deploynas.latency.target import target_of
from deploynas.pipeline.eight_bits import EightBits
from deploynas.pipeline.images import calibration_subset, preprocessing, stream
from deploynas.pipeline.limits import require_within
from deploynas.pipeline.on_provider import bf16_file, judge_of
from deploynas.pipeline.patience import patiently
from deploynas.pipeline.verdict import NetworkFiles, Rule, TimedFiles, timed_files
from deploynas.providers import Precision
from deploynas.report.publication import Publication
from deploynas.report.verdict import Asked, VerdictRecord
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.supernet.trained_quantization import TrainedQuantization
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord

# bf16 is the fp32 file, and what its session is told: a second file would be the same, and twice the size
MODEL = {
    "fp32": "model.onnx",
    "fp16": "model.fp16.onnx",
    "bf16": "model.onnx",
    "int8": "model.int8.onnx",
    "mixed": "model.mixed.onnx",
}
COMPUTED_IN: dict[str, Precision] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8", "mixed": "int8"}

# of a file that the device does not ask for: only if it pays, or whatever is measured
Shipping = Literal["measured", "force"]


@dataclass(frozen=True)
class Wishes:
    """How a bundle is to be made."""

    # None: no such file, unless it is the precision of the device; `mixed`: 8 bits in the parts where they pay
    int8: Shipping | Literal["mixed"] | None = None
    fp16: Shipping | None = None
    bf16: Shipping | None = None
    calibration: Calibration = field(default_factory=Calibration)  # of 8-bit files
    max_accuracy_drop: float = 0.01  # of files with fewer bits than fp32
    opset: int = OPSET
    triton: bool = False
    ort_package: bool = False  # ONNX Runtime's, with the options that were measured
    publication: Publication = field(default_factory=Publication)  # what the card says that nobody measured
    sign: str | None = None  # the file of a private key
    rounds: int = 3
    runs: int = 300  # timed inferences per file
    frontier_points: int = 5  # networks of the frontier that are measured for the report
    compare: int = 0  # random networks of the same latency that are fine-tuned too, for the report
    patience_s: float = 0.0  # to wait for a quieter moment, when a busy machine misses a budget that it would keep


@dataclass(frozen=True)
class Exported:
    network: Path
    checkpoint: Checkpoint
    files: NetworkFiles
    timed: TimedFiles
    waits: tuple[BenchResult, ...] = ()  # what was measured before, on a busier machine, of the file to deploy

    @property
    def benches(self) -> dict[str, BenchResult]:
        """By precision, of the files that ship."""
        return self.timed.benches

    @property
    def verdicts(self) -> tuple[VerdictRecord, ...]:
        return self.timed.verdicts

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

    `forms`: what the device's table chose, for the file in the device's precision. Other files have the default. Files
    with fewer bits that do not pay are not left in the folder.
    """
    written = write_network(network, batches, device, stage, wishes, forms, budget_ms)
    cases = [_case(path, precision, device) for precision, path in written.paths.items()]
    rule = Rule(asked_for(device, wishes), wishes.max_accuracy_drop, written.untrained)

    def measured() -> TimedFiles:
        made = bench_together(cases, device, runs=wishes.runs)
        benches = dict(zip(written.paths, made.results, strict=True))
        # of the others against the first, which is fp32 where the provider runs that
        ratios = dict(zip(list(written.paths)[1:], made.ratios, strict=True)) if "fp32" in benches else {}
        return timed_files(written.files, benches, ratios, device, rule)

    timed, waits = patiently(measured, device, budget_ms, wishes.patience_s)
    for path in set(written.paths.values()) - {written.paths[precision] for precision in timed.benches}:
        path.unlink()
    return Exported(network, written.checkpoint, written.files, timed, tuple(busier.gated_bench for busier in waits))


def _case(path: Path, precision: str, device: Device) -> Case:
    """fp32 and bf16 are one file, opened in two ways."""
    opened_in = device.opened_for(precision).precision
    return Case(path, precision=None if opened_in == device.precision else opened_in)


def asked_for(device: Device, wishes: Wishes) -> dict[str, Asked]:
    """By precision with fewer bits than fp32, and why a file in it is made."""
    mixed = wishes.int8 == "mixed"
    if mixed and device.precision != "fp32":
        raise InputError(
            f"device `{device.name}` asks for {device.precision} everywhere", hint="`precision: fp32` in its file"
        )
    asked: dict[str, Asked] = {"fp16": wishes.fp16} if wishes.fp16 else {}
    asked |= {"bf16": wishes.bf16} if wishes.bf16 else {}
    if wishes.int8:
        # the parts that pay may be all
        asked |= {"int8": "measured", "mixed": "measured"} if wishes.int8 == "mixed" else {"int8": wishes.int8}
    return asked if device.precision == "fp32" else {**asked, device.precision: "device"}


@dataclass(frozen=True)
class Written:
    """A network's files, verified and not yet timed."""

    checkpoint: Checkpoint
    files: NetworkFiles
    paths: dict[str, Path]  # by precision, of those that the provider can run

    @property
    def untrained(self) -> bool:
        return bool(CheckpointRecord.of(self.checkpoint).untrained)


def write_network(
    network: Path,
    batches: Batches,
    device: Device,
    stage: Path,
    wishes: Wishes,
    forms: OperatorForms = DEFAULT_FORMS,
    budget_ms: float | None = None,
) -> Written:
    """Write and verify the files of a network into a folder; `GateError` if the device file does not allow it.

    The budget decides which parts are in 8 bits, where that is asked.
    """
    checkpoint = load_checkpoint(network)
    architecture = checkpoint.architecture
    if architecture is None:
        raise InputError(f"{network} holds a supernet, expected one network", hint="`deploynas finetune` makes one")
    batches = batches.at_the_size_of(architecture)
    require_within(device, architecture)
    record = CheckpointRecord.of(checkpoint)
    metadata = metadata_of(checkpoint, batches, device.provider_name)
    written_in = "fp32" if device.precision == "bf16" else device.precision
    source = TorchNetwork(checkpoint.model, architecture, metadata, wishes.opset, {written_in: forms})
    files = _files_for(device, source, batches, wishes, _Beside(TrainedQuantization.beside(network), budget_ms))
    if not record.untrained:  # random weights have no accuracy to lose
        _require_accuracy(files, device, wishes.max_accuracy_drop)
    # what the provider cannot compute in is written for comparison alone, and not shipped
    made = {name: file for name, file in files.by_precision().items() if not device.record.why_not(COMPUTED_IN[name])}
    for precision, file in made.items():
        write_bytes(stage / MODEL[precision], file.content)
    return Written(checkpoint, files, {precision: stage / MODEL[precision] for precision in made})


def metadata_of(checkpoint: Checkpoint, batches: Batches, provider: str | None = None) -> Metadata:
    """What a network's files say about themselves; `batches` are of its own input size."""
    record, data = CheckpointRecord.of(checkpoint), batches.data
    return Metadata(
        preprocessing=preprocessing(data, batches.space),
        labels=list(data.classes),
        data=record.data.public() if record.data else None,
        validation_accuracy=record.validation_accuracy,
        lineage=record.lineage.public(),
        teacher=record.teacher,
        provider=provider,
        untrained=bool(record.untrained),
    )


def _require_accuracy(files: NetworkFiles, device: Device, most: float) -> None:
    """Of the file that the device asks for: without it there is nothing to ship."""
    if device.precision == "fp16" and files.fp16:
        files.fp16.lost.require("fp16", most, "`precision: fp32` in the device file, or --max-accuracy-drop")
    if device.precision == "bf16" and files.bf16 and files.bf16.lost:
        files.bf16.lost.require("bf16", most, "`precision: fp32` in the device file, or --max-accuracy-drop")
    if device.precision == "int8" and files.int8:
        hint = "another --calibration-method, a larger --calibration-share, or --max-accuracy-drop"
        files.int8.lost.require("int8", most, hint)


@dataclass(frozen=True)
class _Beside:
    """What decides about 8 bits besides wishes."""

    trained: TrainedQuantization | None  # what lies beside the network
    budget_ms: float | None


def _files_for(
    device: Device, network: TorchNetwork, batches: Batches, wishes: Wishes, beside: _Beside
) -> NetworkFiles:
    """Fp32, and what the device or somebody wants besides."""
    validation, asked = stream(batches, batches.data.validation), asked_for(device, wishes)
    fp32 = fp32_file(network, validation)
    impossible = _impossible(device, asked)
    fp16, bf16, int8, mixed, assignments = None, None, None, None, None
    if "fp16" in asked and "fp16" not in impossible:
        with _refusing("fp16", asked, impossible):
            fp16 = fp16_file(network, fp32, validation, judge_of(device))
    if "bf16" in asked and "bf16" not in impossible:
        with _refusing("bf16", asked, impossible):
            bf16 = bf16_file(fp32, device.opened_for("bf16"), validation)
    images = stream(batches, calibration_subset(batches.data, wishes.calibration.share))
    eight_bits = EightBits(
        network, fp32, images, validation, wishes.calibration, device, wishes.max_accuracy_drop, beside.trained
    )
    if "mixed" in asked and "mixed" not in impossible:
        mixed, assignments = eight_bits.mixed(beside.budget_ms)
        if mixed is None:
            impossible["mixed"] = f"fp32 in all parts is {assignments.goal}"
        elif not mixed.in_float:
            int8, mixed = mixed, None
    elif "int8" in asked and "int8" not in impossible:
        int8 = eight_bits.whole()
    return NetworkFiles(fp32, fp16, bf16, int8, mixed, impossible, assignments)


@contextmanager
def _refusing(precision: str, asked: Mapping[str, Asked], impossible: dict[str, str]) -> Iterator[None]:
    """A file that is only to ship if it pays may turn out to be impossible; an error for what has to ship."""
    try:
        yield
    except GateError as error:
        if asked[precision] != "measured":
            raise
        impossible[precision] = error.message


def _impossible(device: Device, asked: Mapping[str, Asked]) -> dict[str, str]:
    """Why the provider runs no such file as the device is written; an error for what has to ship."""
    found = {}
    for precision, how in asked.items():
        why = device.why_not_beside(COMPUTED_IN[precision])
        if not why and device.record.instructions.get(COMPUTED_IN[precision]):
            why = lacking_instructions(device, COMPUTED_IN[precision], target_of(device).facts().hardware)
        if why:
            if how != "measured":
                raise InputError(f"device `{device.name}` cannot run {precision}: {why}")
            found[precision] = why
    return found
