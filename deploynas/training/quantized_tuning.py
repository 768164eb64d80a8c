"""Fine-tuning on, in 8 bits: the network computes what its 8-bit graph will, and learns to live with the rounding.

The same images, teacher, loss and loop as in fine-tuning, at a lower learning rate. It starts from the folded weights
and calibrated ranges of a network that is fine-tuned already, whose own files stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from pydantic import JsonValue
from torch import nn

from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.progress import OnProgress, silent
from deploynas.quantization import Quantization
from deploynas.supernet.checkpoint import Checkpoint
from deploynas.supernet.input_size import at_one_size, for_any_size
from deploynas.supernet.quantized_network import QuantizedNetwork
from deploynas.supernet.trained_quantization import (
    QuantizedTuningRecord,
    TrainedQuantization,
    remove_trained_quantization,
)
from deploynas.training.batches import Batches
from deploynas.training.data import Data
from deploynas.training.distribution import Processes
from deploynas.training.evaluation import accuracy
from deploynas.training.loop import Lesson, Machine, Phase, fit
from deploynas.training.objectives import Plain
from deploynas.training.recipe import Recipe
from deploynas.training.state import OtherSettings, read_state, remove_state, require_same_run
from deploynas.training.teacher import Teacher

PHASE = "int8"


@dataclass(frozen=True)
class QuantizedTuningResult:
    path: Path  # network.int8.safetensors
    calibrated_accuracy: float  # validation images, 8 bits, before the first step
    validation_accuracy: float
    test_accuracy: float | None
    resumed: bool  # nothing was left to do


@dataclass(frozen=True)
class QuantizedStart:
    """Where it starts: the weights that the graph is written from, and ranges by name."""

    weights: Mapping[str, np.ndarray]
    ranges: Mapping[str, tuple[float, float]]
    calibration: dict[str, JsonValue] = field(default_factory=dict)  # how the ranges were found


@dataclass(frozen=True)
class QuantizedTuningTask:
    """One fine-tuned network to train in 8 bits: for which quantisation, on what, how, and with whose help."""

    network: Checkpoint
    start: QuantizedStart
    quantization: Quantization
    data: Data
    recipe: Recipe
    teacher: Teacher | None = None

    def settings(self) -> dict[str, object]:
        """Everything that decides the outcome."""
        return {
            "network": self.network.weights_sha256,
            "quantization": self.quantization.model_dump(),
            "calibration": self.start.calibration,
            "data": self.data.describe().model_dump(),
            "recipe": self.recipe.int8_settings(),
            "teacher": self.teacher.describe().model_dump() if self.teacher else None,
        }


def tune_quantized(
    task: QuantizedTuningTask, network: Path, force: bool = False, on_progress: OnProgress = silent
) -> QuantizedTuningResult:
    """Run, continue or report the training of what lies beside `network`, in this process alone."""
    run = _QuantizedRun(task, Path(network), on_progress)
    run.prepare(force)
    return run.train()


class _QuantizedRun:
    def __init__(self, task: QuantizedTuningTask, network: Path, on_progress: OnProgress) -> None:
        architecture = task.network.architecture
        if architecture is None:
            raise InputError(f"{network} holds a supernet, expected one network")
        self.task, self.recipe, self.architecture = task, task.recipe, architecture
        self.network, self.folder, self.on_progress = network, network.parent, on_progress
        device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self.alone = Processes(0, 1, device)
        self.batches = Batches(task.data, task.network.space, task.recipe.augmentation, device, task.recipe.workers)
        self.teacher = task.teacher.to(device) if task.teacher else None
        self.fingerprint = content_hash(task.settings())

    def prepare(self, force: bool) -> None:
        """Refuse what another run left; remove it if forced to."""
        if force:
            remove_state(self.folder)
            remove_trained_quantization(self.network)
        state = read_state(self.folder)
        if state and state[0].phase == PHASE:
            require_same_run(state[0], self.fingerprint, self.folder)
        there = TrainedQuantization.beside(self.network)
        # of a network that has other weights by now it is of no use to anybody
        if there and there.outdated:
            remove_trained_quantization(self.network)
        elif there and there.about.fingerprint != self.fingerprint:
            raise OtherSettings(f"{TrainedQuantization.path(self.network)} was trained with other settings")

    def train(self) -> QuantizedTuningResult:
        found = TrainedQuantization.beside(self.network)
        resumed = found is not None
        if found is None:
            model = self._start()
            calibrated = self._accuracy(model)
            found = self._trained(self._fit(model), calibrated)
            found.save(self.network)
            remove_state(self.folder)
        about = found.about
        assert about.calibrated_accuracy is not None and about.validation_accuracy is not None
        accuracies = (about.calibrated_accuracy, about.validation_accuracy, about.test_accuracy)
        return QuantizedTuningResult(TrainedQuantization.path(self.network), *accuracies, resumed)

    def _start(self) -> nn.Module:
        start, parts = self.task.start, self.architecture.space.parts(self.architecture)
        learned = self.recipe.int8.ranges == "learned"
        model = QuantizedNetwork(parts, start.weights, start.ranges, self.task.quantization, learned)
        return for_any_size(model.to(self.alone.device), self.architecture)

    def _fit(self, model: nn.Module) -> nn.Module:
        schedule = self.recipe.int8_schedule
        phase = Phase(self.folder, PHASE, self.fingerprint, self.recipe.seed, self.recipe.checkpoint_every_s)
        objective = Plain(schedule.label_smoothing, self.teacher, schedule.distillation)
        lesson = Lesson(objective, self.batches, schedule, self._accuracy)
        # in lower precision it would no longer round as the graph does
        return fit(model, lesson, phase, Machine(self.alone, "fp32"), self.on_progress)

    def _trained(self, model: nn.Module, calibrated_accuracy: float) -> TrainedQuantization:
        network = at_one_size(model.eval())
        assert isinstance(network, QuantizedNetwork)
        task, data = self.task, self.task.data
        about = QuantizedTuningRecord(
            fingerprint=self.fingerprint,
            recipe=self.recipe.int8_settings(),
            teacher=task.teacher.describe() if task.teacher else None,
            calibration=task.start.calibration,
            calibrated_accuracy=calibrated_accuracy,
            validation_accuracy=self._accuracy(model),
            test_accuracy=accuracy(model, self.batches, data.test) if data.test else None,
        )
        ranges = network.ranges.by_name()
        sha256 = task.network.weights_sha256
        return TrainedQuantization(network.folded_weights(), ranges, task.quantization, sha256, about)

    def _accuracy(self, model: nn.Module) -> float:
        return accuracy(model.eval(), self.batches, self.task.data.validation)
