"""Fine-tuning one sub-network: it inherits w*, and learns from the labels and from a teacher (METHODS: training, 4).

The same loop, checkpoints and resume as training. The folder ends with `network` (safetensors + JSON), a plain timm
model, whose JSON says what it was made from.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from deploynas.files import content_hash
from deploynas.progress import OnProgress, silent
from deploynas.provenance import NetworkLineage
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import Checkpoint, save_network
from deploynas.supernet.extraction import extract, network_alone
from deploynas.supernet.input_size import at_one_size, for_any_size
from deploynas.supernet.network import Supernet
from deploynas.supernet.trained_quantization import remove_trained_quantization
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord, place_beside
from deploynas.training.data import Data
from deploynas.training.distribution import Processes, processes
from deploynas.training.evaluation import accuracy, recalibrate_on_train
from deploynas.training.loop import Lesson, Machine, Phase, fit
from deploynas.training.metrics import FILE as METRICS_FILE
from deploynas.training.objectives import Plain
from deploynas.training.oneshot import precision_on
from deploynas.training.quantized_tuning import PHASE as INT8_PHASE
from deploynas.training.recipe import Recipe
from deploynas.training.state import OtherSettings, read_state, remove_state, require_same_run
from deploynas.training.teacher import Teacher

NETWORK, PHASE = "network", "finetune"


@dataclass(frozen=True)
class FinetuneResult:
    path: Path  # network.safetensors
    architecture: Architecture
    inherited_accuracy: float | None  # before; None: from scratch
    validation_accuracy: float
    test_accuracy: float | None  # of images that no step before has seen; None: the data has none
    resumed: bool  # nothing was left to do


@dataclass(frozen=True)
class FineTuningTask:
    """One sub-network to fine-tune: from which weights, on what, how, and with whose help."""

    supernet: Checkpoint
    architecture: Architecture
    data: Data
    recipe: Recipe
    teacher: Teacher | None = None
    from_scratch: bool = False  # random weights: what inheriting is worth is the difference
    lineage: NetworkLineage = field(default_factory=NetworkLineage)

    def settings(self) -> dict[str, object]:
        """Everything that decides the outcome: other weights of the supernet make another network."""
        return {
            "data": self.data.describe().model_dump(),
            "recipe": self.recipe.finetune_settings(),
            "teacher": self.teacher.describe().model_dump() if self.teacher else None,
            "from_scratch": self.from_scratch,
            "space": self.architecture.space.hash,
            "architecture": self.architecture.choices,
            "supernet": self.supernet.weights_sha256,
        }


def finetune(task: FineTuningTask, out: Path, force: bool = False, on_progress: OnProgress = silent) -> FinetuneResult:
    """Run, continue or report the fine-tuning in folder `out`."""
    with processes() as group:
        run = _Run(task, Path(out), group, on_progress)
        if group.first:
            run.prepare(force)
        return run.train()


class _Run:
    def __init__(self, task: FineTuningTask, folder: Path, group: Processes, on_progress: OnProgress) -> None:
        assert isinstance(task.supernet.model, Supernet)
        recipe = task.recipe
        self.task, self.recipe, self.supernet = task, recipe, task.supernet.model
        task.supernet.space.require_member(task.architecture)
        self.architecture = task.architecture
        self.batches = Batches(task.data, task.supernet.space, recipe.augmentation, group.device, recipe.workers)
        self.teacher = task.teacher.to(group.device) if task.teacher else None
        self.folder, self.group, self.on_progress = folder, group, on_progress
        self.path = folder / f"{NETWORK}.safetensors"
        self.fingerprint = content_hash({**task.settings(), "world": group.world})
        self.record = CheckpointRecord(
            role="network",
            fingerprint=self.fingerprint,
            data=task.data.describe(),
            data_place=place_beside(task.data.place, folder),
            recipe=recipe.finetune_settings(),
            processes=group.world,
            teacher=task.teacher.describe() if task.teacher else None,
            from_scratch=task.from_scratch,
            lineage=task.lineage,
        )

    def prepare(self, force: bool) -> None:
        """Refuse a folder of another run; empty it of what we write if forced to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if force:
            remove_state(self.folder)
            remove_trained_quantization(self.path)
            for path in (self.path.with_suffix(".json"), self.path, self.folder / METRICS_FILE):
                path.unlink(missing_ok=True)
        state = read_state(self.folder)
        there = self.path.with_suffix(".json").exists()
        # of a network that is finished, the training in 8 bits may have been stopped
        if state and not (there and state[0].phase == INT8_PHASE):
            require_same_run(state[0], self.fingerprint, self.folder)
        if there and CheckpointRecord.read(self.path).fingerprint != self.fingerprint:
            raise OtherSettings(f"{self.folder} holds a network of other settings")

    def train(self) -> FinetuneResult:
        resumed = self.group.share_bytes(b"x" if self.path.with_suffix(".json").exists() else None) is not None
        if not resumed:
            model = self._start()
            inherited = None if self.task.from_scratch else self._inherited_accuracy(model)
            trained = self._fit(model)
            if self.group.first:
                measured = {"inherited_accuracy": inherited, **self._measure(trained)}
                about = self.record.model_copy(update=measured).about()
                save_network(at_one_size(trained), self.architecture, self.path, about)
                remove_state(self.folder)
        if not self.group.first:
            return FinetuneResult(self.path, self.architecture, None, 0.0, None, resumed)
        record = CheckpointRecord.read(self.path)
        assert record.validation_accuracy is not None
        accuracies = (record.inherited_accuracy, record.validation_accuracy, record.test_accuracy)
        return FinetuneResult(self.path, self.architecture, *accuracies, resumed)

    def _start(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        if self.task.from_scratch:
            model = network_alone(self.architecture).to(self.group.device)
        else:
            model = extract(self.supernet.to(self.group.device), self.architecture)
        return for_any_size(model, self.architecture)  # images come as large as the teacher wants them

    def _inherited_accuracy(self, model: nn.Module) -> float:
        """With statistics of its own; those that it inherits are of many sub-networks."""
        copied = copy.deepcopy(model)
        recalibrate_on_train(copied, self.batches, self.recipe.recalibration_images)
        return accuracy(copied.eval(), self.batches, self.batches.data.validation)

    def _fit(self, model: nn.Module) -> nn.Module:
        recipe, schedule = self.recipe, self.recipe.finetune
        phase = Phase(self.folder, PHASE, self.fingerprint, recipe.seed, recipe.checkpoint_every_s)
        machine = Machine(self.group, precision_on(recipe.precision, self.group.device))
        objective = Plain(schedule.label_smoothing, self.teacher, schedule.distillation)

        def validate(m: nn.Module) -> float:
            return accuracy(m, self.batches, self.batches.data.validation)

        return fit(model, Lesson(objective, self.batches, schedule, validate), phase, machine, self.on_progress)

    def _measure(self, trained: nn.Module) -> dict[str, float | None]:
        recalibrate_on_train(trained, self.batches, self.recipe.recalibration_images)
        trained.eval()
        data = self.batches.data
        return {
            "validation_accuracy": accuracy(trained, self.batches, data.validation),
            "test_accuracy": accuracy(trained, self.batches, data.test) if data.test else None,
        }
