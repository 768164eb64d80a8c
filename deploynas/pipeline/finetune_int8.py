"""A fine-tuned network trained on in 8 bits, as a device has them: from its folder to the file beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from deploynas import graph
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.export.calibration import Calibration, activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.latency.target import target_of
from deploynas.latency.weight_types import weight_types
from deploynas.pipeline.export import ExportOptions, GivenNetwork, open_network
from deploynas.pipeline.images import calibration_subset, stream
from deploynas.progress import OnProgress, silent
from deploynas.quantization import Quantization
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.training.batches import Batches
from deploynas.training.data import Data
from deploynas.training.finetune import FinetuneResult
from deploynas.training.quantized_tuning import (
    QuantizedStart,
    QuantizedTuningResult,
    QuantizedTuningTask,
    tune_quantized,
)
from deploynas.training.recipe import Augmentation, Recipe
from deploynas.training.teacher import Teacher, load_teacher


@dataclass(frozen=True)
class Int8Options:
    recipe: Recipe | None = None  # None: that of the network
    changes: tuple[str, ...] = ()  # to it, as `--set` takes them
    teacher: str | None = None  # None: who taught the network
    data: str | Data | None = None  # None: what the network was fine-tuned on
    supernet: Path | None = None  # whose w_h teaches; None: as the network remembers
    calibration: Calibration = field(default_factory=Calibration)  # that ranges start from
    force: bool = False  # start over; the network itself stays


def finetune_int8(
    network: str | Path | FinetuneResult,
    device: str | Device | Quantization,
    options: Int8Options | None = None,
    on_progress: OnProgress = silent,
) -> QuantizedTuningResult:
    """Train a fine-tuned network on in 8 bits, or continue; `export` takes what it writes beside the network."""
    options = options or Int8Options()
    path = network.path if isinstance(network, FinetuneResult) else network
    given = open_network(path, ExportOptions(data=options.data, supernet=options.supernet))
    task = int8_task(given, quantization_of(device), options)
    return tune_quantized(task, given.path, options.force, on_progress)


def quantization_of(device: str | Device | Quantization) -> Quantization:
    """A device by name, or loaded, means its own; where several would do, the first that `export` tries."""
    if isinstance(device, Quantization):
        return device
    device = Device.load(device) if isinstance(device, str) else device
    return weight_types(device, target_of(device).facts())[0]


def int8_task(given: GivenNetwork, quantization: Quantization, options: Int8Options) -> QuantizedTuningTask:
    if given.untrained:
        raise InputError(f"{given.path} has random weights: there is nothing to train on from in 8 bits")
    checkpoint = load_checkpoint(given.path)
    recipe = (options.recipe or given.recipe).changed(options.changes)
    start = _start(checkpoint, given.data, options.calibration)
    teacher = _teacher(given, options) if recipe.finetune.distillation.weight > 0 else None
    return QuantizedTuningTask(checkpoint, start, quantization, given.data, recipe, teacher)


def _start(checkpoint: Checkpoint, data: Data, calibration: Calibration) -> QuantizedStart:
    architecture = checkpoint.architecture
    if architecture is None:
        raise InputError("a supernet cannot be trained in 8 bits, only one network")
    parts = architecture.space.parts(architecture)
    weights = folded_weights(checkpoint.model, parts)
    batches = Batches(data, checkpoint.space, Augmentation()).at_the_size_of(architecture)
    images = stream(batches, calibration_subset(data, calibration.share))
    ranges = activation_ranges(graph.chain(parts, weights, graph.Form(None)), images, calibration.method)
    return QuantizedStart(weights, ranges, asdict(calibration))


def _teacher(given: GivenNetwork, options: Int8Options) -> Teacher:
    """Who was asked for, else who taught before: w_h beside the supernet, if nobody else."""
    asked = options.teacher or given.sources.teacher
    if asked is not None:
        return load_teacher(asked, given.space, given.data)
    if given.sources.supernet is None:
        raise InputError(
            f"{given.path} does not say where the supernet is that it was taught by",
            hint=f"`--supernet RUN`, `--teacher FILE` (`--teacher {given.path}` is the network itself, before 8 bits), "
            "or `--set finetune.distillation.weight=0`",
        )
    return given.sources.supernet.open().teacher(None)
