"""A relaxed search on a supernet: alpha and copies of the weights learn together, each from its half of the images.

Every decision is a softmax over alpha, and the supernet computes the sum of all options by these probabilities. Images
are mirrored at random (those from files cropped too), and all that is drawn depends on seed and step alone: a search
that was killed and resumed ends with the same bits as one that was not. A folder holds one search: `state.json` with
its tensors while it runs, then `alpha.json`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, Field
from torch import Tensor, nn

from deploynas.errors import DeployNASError, InputError
from deploynas.files import content_hash, parse_json, write_json
from deploynas.one_writer import writing_in
from deploynas.progress import OnProgress, silent
from deploynas.space import Space
from deploynas.supernet.network import Supernet, require_mixable
from deploynas.training.batches import Batches, BatchShare, LabelledImages, mix_seed
from deploynas.training.data import Data, Subset
from deploynas.training.metrics import Metrics
from deploynas.training.recipe import Augmentation
from deploynas.training.relaxed_updates import Losses, RelaxedUpdates, UpdateSettings, Variables
from deploynas.training.resumable import run_steps
from deploynas.training.state import Trainee, parse_state, read_state, remove_state, require_same_run, save_state

PHASE, FINISHED = "relaxed", "alpha.json"

AlphaGradient = Callable[[np.ndarray], np.ndarray]  # of the penalty P, by alpha


@dataclass(frozen=True)
class RelaxedSettings:
    updates: UpdateSettings = field(default_factory=UpdateSettings)
    epochs: int = 5  # passes over each half of the training images
    batch: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise InputError(f"a relaxed search takes an epoch or more and batches of two images or more, got {self}")


@dataclass(frozen=True)
class RelaxedTask:
    """One search, at one weight of the penalty. `supernet` has the weights that both copies start from."""

    supernet: Supernet
    weights: str  # what identifies those
    data: Data
    settings: RelaxedSettings
    penalty: AlphaGradient
    penalty_hash: str  # of what decides the penalty
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    checkpoint_every_s: float = 30.0

    @property
    def space(self) -> Space:
        return self.supernet.space

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that decides the outcome; without a weight the penalty decides nothing."""
        return content_hash(
            {
                "settings": asdict(self.settings),
                "space": self.space.hash,
                "data": self.data.describe().model_dump(),
                "weights": self.weights,
                "penalty": self.penalty_hash if self.settings.updates.gamma else "",
            }
        )


class AlphaFile(BaseModel):
    schema_: Literal["deploynas/relaxed-alpha"] = Field(default="deploynas/relaxed-alpha", alias="schema")
    schema_version: int = 1
    fingerprint: str
    settings: dict[str, Any]
    space: dict[str, Any]
    space_hash: str
    steps: int
    alpha: list[float]  # a logit for every option, in the order of a vector of decisions
    primary_loss: float  # L_p and L_a of the last epoch, in the mean over its steps
    auxiliary_loss: float


def halves(data: Data, seed: int) -> tuple[Subset, Subset]:
    """Of the training images at random: D_p, which may have one more, and D_a."""
    train = data.train
    if len(train) < 4:
        raise InputError(f"{len(train)} training images are too few to be split in halves")
    generator = torch.Generator().manual_seed(mix_seed(seed, 0, 6))
    first, second = torch.randperm(len(train), generator=generator).tensor_split(2)
    return _some(train, first), _some(train, second)


def _some(subset: Subset, numbers: Tensor) -> Subset:
    return Subset(subset.images, subset.rows[numbers.sort().values])


def relax(task: RelaxedTask, folder: Path, on_progress: OnProgress = silent) -> AlphaFile:
    """Run, continue or report the search in a folder."""
    require_mixable(task.space)
    with writing_in(folder, "search --solver rarts"):
        return _relaxed_in(folder, task, on_progress)


def _relaxed_in(folder: Path, task: RelaxedTask, on_progress: OnProgress) -> AlphaFile:
    finished = folder / FINISHED
    if finished.exists():
        file = parse_json(finished, AlphaFile)
        if file.fingerprint != task.fingerprint:
            raise InputError(f"{finished} is of a search with other settings", hint="remove that folder")
        return file
    file = _Run(task, folder, on_progress).search()
    write_json(finished, file.model_dump(by_alias=True))
    remove_state(folder)
    return file


class _Run:
    def __init__(self, task: RelaxedTask, folder: Path, on_progress: OnProgress) -> None:
        self.task, self.settings, self.folder, self.on_progress = task, task.settings, folder, on_progress
        batches = Batches(task.data, task.space, Augmentation(), task.device)
        self.halves = [replace(batches, data=replace(task.data, train=own)) for own in halves(task.data, self.seed)]
        # the halves differ by one image at most; steps are as many as the smaller one has batches
        self.per_epoch = min(half.steps_per_epoch(self.settings.batch) for half in self.halves)
        self.steps = self.per_epoch * self.settings.epochs
        rule = self.settings.updates.rule
        w = task.supernet.to(task.device).to(memory_format=torch.channels_last)
        second = copy.deepcopy(w) if rule == "rarts" else None
        alpha = torch.zeros(len(task.space.decisions), device=task.device)
        self.variables = Variables(copy.deepcopy(w), second, alpha).train()
        self.updates = RelaxedUpdates(self.variables, self.settings.updates)
        self.trainee = Trainee(self.variables, None, self.updates.optimizer, torch.amp.GradScaler(enabled=False))
        self.metrics = Metrics(folder)
        self.step = 0
        self.totals = [0.0, 0.0, 0.0]  # L_p, L_a, steps of this epoch so far

    @cached_property
    def state_fingerprint(self) -> str:
        """Also of the images as they lie there: halfway they must not become others."""
        return content_hash([self.task.fingerprint, self.task.data.content_hash])

    @property
    def seed(self) -> int:
        return self.settings.seed

    def search(self) -> AlphaFile:
        self._resume()
        run_steps(self._stream(), self._step, self._save, self.task.checkpoint_every_s)
        primary, auxiliary = self._means()
        return AlphaFile(
            fingerprint=self.task.fingerprint,
            settings=asdict(self.settings),
            space=self.task.space.describe(),
            space_hash=self.task.space.hash,
            steps=self.step,
            alpha=self.variables.alpha.detach().double().cpu().tolist(),
            primary_loss=primary,
            auxiliary_loss=auxiliary,
        )

    def _stream(self) -> Iterator[tuple[LabelledImages, LabelledImages]]:
        """The batch of D_p and that of D_a, step by step."""
        streams = (
            half.train(self.settings.batch, self.step, self.steps, mix_seed(self.seed, number, 7), BatchShare())
            for number, half in enumerate(self.halves)
        )
        return zip(*streams, strict=True)

    def _step(self, given: tuple[LabelledImages, LabelledImages]) -> None:
        if self.step % self.per_epoch == 0:
            self.totals = [0.0, 0.0, 0.0]
        values = self.updates.step(Losses(self._loss(given[0]), self._loss(given[1]), self._penalty))
        if not np.isfinite(values).all():
            raise DeployNASError(
                f"the loss of the relaxed search became {max(values)} at step {self.step + 1} of {self.steps}",
                hint="lower the rates of weights and alpha",
            )
        self.step += 1
        for i, amount in enumerate((*values, 1.0)):
            self.totals[i] += amount
        epoch, (loss, auxiliary) = (self.step - 1) // self.per_epoch + 1, self._means()
        if self.step % self.per_epoch == 0:
            self.metrics.add(PHASE, self.step, epoch=epoch, primary_loss=loss, auxiliary_loss=auxiliary)
        self.on_progress(self.step / self.steps, f"epoch {epoch}/{self.settings.epochs}, loss {loss:.3f}")

    def _means(self) -> tuple[float, float]:
        """Of L_p and L_a, over this epoch so far."""
        primary, auxiliary, steps = self.totals
        return primary / steps, auxiliary / steps

    def _loss(self, batch: LabelledImages) -> Callable[[nn.Module, Tensor], Tensor]:
        images, labels = batch

        def loss(supernet: nn.Module, alpha: Tensor) -> Tensor:
            assert isinstance(supernet, Supernet)
            p = torch.cat([alpha[where].softmax(0) for where in self.task.space.decisions.slices])
            return F.cross_entropy(supernet.mixed(images, p), labels)

        return loss

    def _penalty(self, alpha: Tensor) -> Tensor:
        return torch.from_numpy(self.task.penalty(alpha.double().cpu().numpy())).to(alpha)

    def _save(self) -> None:
        save_state(self.folder, PHASE, self.state_fingerprint, self.step, self.totals, self.trainee)

    def _resume(self) -> None:
        found = read_state(self.folder)
        if found is not None:
            require_same_run(found[0], self.state_fingerprint, self.folder)
            file, tensors = parse_state(found[0].model_dump_json(by_alias=True).encode(), found[1])
            self.trainee.restore(file, tensors)
            self.step, self.totals = file.step, list(file.epoch_totals)
        self.metrics.resume(PHASE, self.step)
