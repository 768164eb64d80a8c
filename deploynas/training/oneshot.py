"""Training a supernet: the heaviest network w_h first, then w*, every image along its own path (METHODS:
training).

A run is a folder: `w_h` and `w_star` (safetensors + JSON), `metrics.jsonl`, and while it is going
`state.json` with its tensors. Starting it again continues it; a finished one is only reported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.progress import OnProgress, silent
from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import RandomPaths
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord, SubnetworkAccuracy, place_beside
from deploynas.training.data import Data, load_data
from deploynas.training.distribution import Processes, processes
from deploynas.training.evaluation import accuracy, for_each_size, recalibrate_on_train
from deploynas.training.loop import Lesson, Machine, Phase, fit
from deploynas.training.memory import remembering
from deploynas.training.metrics import FILE as METRICS_FILE
from deploynas.training.objectives import OneShotPaths, Plain
from deploynas.training.recipe import Recipe
from deploynas.training.state import (
    OtherSettings,
    read_state,
    remove_state,
    require_same_run,
    require_unchanged,
    state_fingerprint,
)

PhaseName = Literal["w_h", "w_star"]
W_H: PhaseName = "w_h"
W_STAR: PhaseName = "w_star"
Trained = tuple[Supernet, dict[str, float | SubnetworkAccuracy | list[float]]]  # weights, and what was measured
W_H_SHARE = 0.2  # of the progress bar, as long as the fast recipe takes for it


@dataclass(frozen=True)
class TrainingResult:
    folder: Path
    w_h_accuracy: float
    subnetworks: SubnetworkAccuracy
    skipped: tuple[str, ...]  # files that could not be read
    resumed: bool  # nothing was left to do
    first: bool = True  # of several processes only the first one measures, reads and writes


def train_supernet(
    space: Space,
    data: str | Data,
    out: Path,
    recipe: Recipe,
    force: bool = False,
    on_progress: OnProgress = silent,
) -> TrainingResult:
    """Run, continue or report the run in folder `out`."""
    with processes() as group:
        loaded = load_data(data, space) if isinstance(data, str) else data
        batches = Batches(loaded, space, recipe.augmentation, group.device, recipe.workers)
        run = _Run(space, batches, Path(out), recipe, group, on_progress)
        if group.first:
            run.prepare(force)
        return run.train()


class _Run:
    def __init__(
        self,
        space: Space,
        batches: Batches,
        folder: Path,
        recipe: Recipe,
        group: Processes,
        on_progress: OnProgress,
    ) -> None:
        self.space, self.batches, self.folder, self.recipe = space, batches, folder, recipe
        self.group, self.on_progress = group, on_progress
        described = batches.data.describe()
        settings = {
            "space": space.hash,
            "data": described.model_dump(),
            "recipe": recipe.training_settings(),
            "world": group.world,
        }
        self.fingerprint = content_hash(settings)
        self.state_fingerprint = state_fingerprint(self.fingerprint, batches.data, group)
        self.record = CheckpointRecord(
            fingerprint=self.fingerprint,
            data=described,
            data_place=place_beside(batches.data.place, folder),
            recipe=recipe.model_dump(by_alias=True, mode="json"),
            processes=group.world,
        )

    def prepare(self, force: bool) -> None:
        """Refuse a folder of another run; empty it of what we write if forced to."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if force:
            remove_state(self.folder)
            for name in (W_H, W_STAR):
                self._path(name).with_suffix(".json").unlink(missing_ok=True)
                self._path(name).unlink(missing_ok=True)
            (self.folder / METRICS_FILE).unlink(missing_ok=True)
        state = read_state(self.folder)
        if state:
            require_same_run(state[0], self.state_fingerprint, self.folder)
        for name in (W_H, W_STAR):
            there = self._path(name).with_suffix(".json").exists()
            if there and CheckpointRecord.read(self._path(name)).fingerprint != self.fingerprint:
                raise OtherSettings(f"{self.folder} holds {name} of a run with other settings")
            if there:
                require_unchanged(self._path(name))

    def train(self) -> TrainingResult:
        torch.manual_seed(self.recipe.seed)
        resumed = self._path(W_STAR).with_suffix(".json").exists()
        w_h = self._phase(W_H, Supernet(self.space), self._train_w_h)
        start = copy.deepcopy(w_h)
        start.sort_channels()
        self._phase(W_STAR, start, lambda model: self._train_w_star(model, w_h))
        if not self.group.first:
            return TrainingResult(self.folder, 0.0, _spread([0.0]), (), resumed, first=False)
        remove_state(self.folder)
        return training_result(self.folder, tuple(sorted(self.batches.skipped)), resumed)

    def _phase(self, name: PhaseName, model: nn.Module, train: Callable[[nn.Module], Trained]) -> Supernet:
        """Train and write one checkpoint, or read it if it is there; everyone gets the first process's."""
        there = self.group.share_bytes(b"x" if self._path(name).with_suffix(".json").exists() else None)
        if there is None:
            trained, measured = train(model)
            if self.group.first:
                record = self.record.model_copy(update={"role": name, **measured})
                trained.save(self._path(name), record.about())
        else:
            loaded = load_checkpoint(self._path(name)).model if self.group.first else model
            assert isinstance(loaded, Supernet)
            trained = loaded.to(self.group.device).to(memory_format=torch.channels_last)
        self.group.share_module(trained)
        return trained.eval()

    def _train_w_h(self, model: nn.Module) -> Trained:
        schedule = self.recipe.w_h
        validation = self.batches.data.validation

        def validate(m: nn.Module) -> float:
            return accuracy(m, self.batches, validation)

        def advance(fraction: float, what: str) -> None:
            self.on_progress(W_H_SHARE * fraction, what)

        lesson = Lesson(Plain(schedule.label_smoothing), self.batches, schedule, validate)
        trained = self._fit(W_H, model, lesson, advance)
        if not self.group.first:
            return trained, {}
        recalibrate_on_train(trained, self.batches, self.recipe.recalibration_images)
        return trained, {"validation_accuracy": accuracy(trained, self.batches, validation)}

    def _train_w_star(self, model: nn.Module, teacher: Supernet) -> Trained:
        schedule, seed = self.recipe.w_star, self.recipe.seed + 1
        validation = self.batches.data.validation
        taught_by = remembering(teacher, self.batches, schedule.epochs) if schedule.distillation else None
        objective = OneShotPaths(self.space, schedule, seed, self.group.share, taught_by)

        def validate(m: nn.Module) -> float:
            assert isinstance(m, Supernet)
            sizes = for_each_size(m, self.batches, self.recipe.recalibration_images)
            right = [
                accuracy(one, self.batches, validation, self._random_paths(i if self.space.sizes else None))
                for i, one in enumerate(sizes)
            ]
            return float(np.mean(right))

        def advance(fraction: float, what: str) -> None:
            self.on_progress(W_H_SHARE + (0.95 - W_H_SHARE) * fraction, what)

        trained = self._fit(W_STAR, model, Lesson(objective, self.batches, schedule, validate), advance)
        if not self.group.first:
            return trained, {}
        recalibrate_on_train(trained, self.batches, self.recipe.recalibration_images, self._random_paths())
        rng, sizes = np.random.default_rng(0), for_each_size(trained, self.batches, self.recipe.recalibration_images)
        accuracies = []
        for i in range(self.recipe.report_networks):
            network = self.space.sample(rng)
            accuracies.append(accuracy(sizes[network.size_index], self.batches, validation, network))
            self.on_progress(0.95 + 0.05 * (i + 1) / self.recipe.report_networks, f"random sub-network {i + 1}")
        return trained, {"subnetworks": _spread(accuracies), "accuracies": accuracies}

    def _random_paths(self, size_index: int | None = None) -> RandomPaths:
        """The same ones at every call."""
        return RandomPaths(self.space, np.random.default_rng(0), size_index)

    def _fit(self, name: str, model: nn.Module, lesson: Lesson, on_progress: OnProgress) -> Supernet:
        recipe = self.recipe
        seed = recipe.seed + (0 if name == W_H else 1)
        phase = Phase(self.folder, name, self.state_fingerprint, seed, recipe.checkpoint_every_s)
        machine = Machine(self.group, precision_on(recipe.precision, self.group.device), some_unused=name == W_STAR)
        trained = fit(model, lesson, phase, machine, on_progress)
        assert isinstance(trained, Supernet)
        return trained

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"


def training_result(folder: Path, skipped: tuple[str, ...] = (), resumed: bool = True) -> TrainingResult:
    """What the checkpoints of a finished run say."""
    heaviest, one_shot = (CheckpointRecord.read(folder / f"{name}.safetensors") for name in (W_H, W_STAR))
    if heaviest.validation_accuracy is None or one_shot.subnetworks is None:
        raise InputError(
            f"{folder} holds networks that were not measured", hint="`deploynas train` makes such a folder"
        )
    return TrainingResult(folder, heaviest.validation_accuracy, one_shot.subnetworks, skipped, resumed)


def _spread(accuracies: list[float]) -> SubnetworkAccuracy:
    values = np.array(accuracies)
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return SubnetworkAccuracy(
        networks=len(values),
        mean=float(values.mean()),
        std=std,
        lowest=float(values.min()),
        highest=float(values.max()),
    )


def precision_on(wanted: str, device: torch.device) -> str:
    """`auto`: bf16 or fp16 where the hardware computes in it, fp32 on CPUs."""
    if wanted != "auto":
        return wanted
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
