"""Fine-tuning one sub-network: it inherits w*, and learns from the labels and from a teacher (METHODS: training, 4).

The same loop, checkpoints and resume as training. The folder ends with `network` (safetensors + JSON), a plain timm
model, whose JSON says what it was made from.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint, save_network
from deploynas.supernet.extraction import extract, timm_model
from deploynas.supernet.network import Supernet
from deploynas.training.batches import Batches
from deploynas.training.data import load_data
from deploynas.training.distribution import Processes, processes
from deploynas.training.evaluation import accuracy, recalibrate_on_train
from deploynas.training.loop import Machine, Place, fit
from deploynas.training.metrics import FILE as METRICS_FILE
from deploynas.training.objectives import Plain
from deploynas.training.oneshot import precision_on
from deploynas.training.recipe import Recipe
from deploynas.training.state import OTHER_SETTINGS, read_state, remove_state, require_same_run
from deploynas.training.teacher import Teacher, load_teacher

NETWORK, PHASE = "network", "finetune"


@dataclass(frozen=True)
class FinetuneResult:
    path: Path  # network.safetensors
    architecture: Architecture
    inherited_accuracy: float | None  # before; None: from scratch
    validation_accuracy: float
    test_accuracy: float | None  # of images that no step before has seen; None: the data has none
    resumed: bool  # nothing was left to do


def finetune(
    supernet: Path,
    architecture: Architecture,
    data: str,
    out: Path,
    recipe: Recipe,
    *,
    teacher: str | None = None,
    from_scratch: bool = False,
    lineage: dict[str, Any] | None = None,
    force: bool = False,
    on_progress: OnProgress = silent,
) -> FinetuneResult:
    """Run, continue or report the fine-tuning in folder `out`. Without `teacher`, w_h beside the supernet teaches.

    `from_scratch` starts from random weights: what inheriting is worth is the difference.
    """
    with processes() as group:
        one_shot = load_checkpoint(supernet)
        if not isinstance(one_shot.model, Supernet):
            raise InputError(f"{supernet} holds one network, expected a supernet", hint="w_star.safetensors of a run")
        # the same space may go by another name there
        architecture = one_shot.space.architecture(architecture.choices)
        loaded = load_data(data, one_shot.space)
        batches = Batches(loaded, one_shot.space, recipe.augmentation, group.device, recipe.workers)
        taught = None
        if recipe.finetune.distillation.weight:
            taught = load_teacher(teacher or str(supernet.with_name("w_h.safetensors")), one_shot.space, loaded)
        run = _Run(one_shot, architecture, batches, Path(out), recipe, taught, from_scratch, group, on_progress)
        if group.first:
            run.prepare(force)
        return run.train(lineage or {})


class _Run:
    def __init__(
        self,
        one_shot: Checkpoint,
        architecture: Architecture,
        batches: Batches,
        folder: Path,
        recipe: Recipe,
        teacher: Teacher | None,
        from_scratch: bool,
        group: Processes,
        on_progress: OnProgress,
    ) -> None:
        assert isinstance(one_shot.model, Supernet)
        self.supernet, self.architecture, self.batches = one_shot.model, architecture, batches
        self.folder, self.recipe, self.from_scratch = folder, recipe, from_scratch
        self.teacher = teacher.to(group.device) if teacher else None
        self.group, self.on_progress = group, on_progress
        self.path = folder / f"{NETWORK}.safetensors"
        included = {"seed", "precision", "augmentation", "finetune", "recalibration_images"}
        self.about: dict[str, Any] = {
            "data": batches.data.describe(),
            "recipe": recipe.model_dump(include=included, mode="json"),
            "teacher": teacher.describe() if teacher else None,
            "from_scratch": from_scratch,
        }
        settings = {
            **self.about,
            "space": architecture.space.hash,
            "architecture": architecture.choices,
            "supernet": one_shot.about.get("fingerprint"),
            "world": group.world,
        }
        self.about["fingerprint"] = self.fingerprint = content_hash(settings)

    def prepare(self, force: bool) -> None:
        """Refuse a folder of another run; empty it of what we write if forced to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if force:
            remove_state(self.folder)
            for path in (self.path.with_suffix(".json"), self.path, self.folder / METRICS_FILE):
                path.unlink(missing_ok=True)
        state = read_state(self.folder)
        if state:
            require_same_run(state[0], self.fingerprint, self.folder)
        there = self.path.with_suffix(".json").exists()
        if there and load_checkpoint(self.path).about.get("fingerprint") != self.fingerprint:
            raise InputError(f"{self.folder} holds a network of other settings", hint=OTHER_SETTINGS)

    def train(self, lineage: dict[str, Any]) -> FinetuneResult:
        resumed = self.group.share_bytes(b"x" if self.path.with_suffix(".json").exists() else None) is not None
        if not resumed:
            model = self._start()
            inherited = None if self.from_scratch else self._inherited_accuracy(model)
            trained = self._fit(model)
            if self.group.first:
                measured = {"inherited_accuracy": inherited, **self._measure(trained)}
                save_network(trained, self.architecture, self.path, {**self.about, **measured, "lineage": lineage})
                remove_state(self.folder)
        if not self.group.first:
            return FinetuneResult(self.path, self.architecture, None, 0.0, None, resumed)
        about = load_checkpoint(self.path).about
        return FinetuneResult(
            self.path,
            self.architecture,
            about["inherited_accuracy"],
            about["validation_accuracy"],
            about["test_accuracy"],
            resumed,
        )

    def _start(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        if self.from_scratch:
            return timm_model(self.architecture).to(self.group.device)
        return extract(self.supernet.to(self.group.device), self.architecture)

    def _inherited_accuracy(self, model: nn.Module) -> float:
        """With statistics of its own; those that it inherits are of many sub-networks."""
        copied = copy.deepcopy(model)
        recalibrate_on_train(copied, self.batches, self.recipe.recalibration_images)
        return accuracy(copied.eval(), self.batches, self.batches.data.validation)

    def _fit(self, model: nn.Module) -> nn.Module:
        recipe, schedule = self.recipe, self.recipe.finetune
        place = Place(self.folder, PHASE, self.fingerprint, recipe.seed, recipe.checkpoint_every_s)
        machine = Machine(self.group, precision_on(recipe.precision, self.group.device))
        objective = Plain(schedule.label_smoothing, self.teacher, schedule.distillation)

        def validate(m: nn.Module) -> float:
            return accuracy(m, self.batches, self.batches.data.validation)

        return fit(model, objective, self.batches, schedule, place, machine, validate, self.on_progress)

    def _measure(self, trained: nn.Module) -> dict[str, float | None]:
        recalibrate_on_train(trained, self.batches, self.recipe.recalibration_images)
        trained.eval()
        data = self.batches.data
        return {
            "validation_accuracy": accuracy(trained, self.batches, data.validation),
            "test_accuracy": accuracy(trained, self.batches, data.test) if data.test else None,
        }
