"""The loop: steps, schedule, moving average, checkpoints, interruption. Used by every phase and by
fine-tuning.

timm's optimizers, cosine schedule and weight average; a step depends only on the state before it and on its
number, so a run that was killed and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from deploynas.errors import DeployNASError, InputError
from deploynas.progress import OnProgress, silent
from deploynas.training.batches import Batches, mix_seed
from deploynas.training.distribution import Processes
from deploynas.training.metrics import Metrics
from deploynas.training.recipe import Schedule
from deploynas.training.resumable import run_steps
from deploynas.training.state import (
    Trainee,
    parse_state,
    read_state,
    require_same_run,
    save_state,
)

LOG_EVERY_STEPS = 10


class TrainingObjective(Protocol):
    """What is minimised: the loss and the logits of one batch."""

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Phase:
    """Where a phase keeps its files, and what tells its run from others."""

    folder: Path
    name: str
    fingerprint: str
    seed: int
    checkpoint_every_s: float = 30.0


@dataclass(frozen=True)
class Machine:
    processes: Processes
    precision: str = "fp32"  # fp32, bf16 or fp16: of activations; weights are always fp32
    some_unused: bool = False  # a step may not reach all weights


@dataclass(frozen=True)
class Lesson:
    """What is learned: from which images, on which schedule, and how it is judged."""

    objective: TrainingObjective
    batches: Batches
    schedule: Schedule
    validate: Callable[[nn.Module], float] | None = None


def fit(
    model: nn.Module, lesson: Lesson, phase: Phase, machine: Machine, on_progress: OnProgress = silent
) -> nn.Module:
    """Train, or resume what the folder holds of this phase. Returns the averaged weights, for evaluation."""
    machine.processes.require_batch(lesson.schedule.batch, phase.name)
    return _Loop(model, lesson, phase, machine, on_progress).run()


class _Loop:
    def __init__(
        self, model: nn.Module, lesson: Lesson, phase: Phase, machine: Machine, on_progress: OnProgress
    ) -> None:
        batches, schedule = lesson.batches, lesson.schedule
        self.objective, self.batches, self.schedule = lesson.objective, batches, schedule
        self.phase, self.machine, self.processes = phase, machine, machine.processes
        self.validate, self.on_progress = lesson.validate, on_progress
        self.per_epoch = batches.steps_per_epoch(schedule.batch)
        self.steps = self.per_epoch * schedule.epochs
        model = model.to(self.processes.device).to(memory_format=torch.channels_last)
        optimizer = _optimizer(model, schedule)
        self.scheduler = CosineLRScheduler(
            optimizer,
            t_initial=max(2, self.steps),
            lr_min=schedule.min_lr,
            warmup_t=round(schedule.warmup_epochs * self.per_epoch),
            warmup_lr_init=schedule.lr / 100,
            t_in_epochs=False,
        )
        self.ema = ModelEmaV3(model, decay=schedule.ema_decay) if schedule.ema_decay else None
        scaler = torch.amp.GradScaler(enabled=machine.precision == "fp16")
        self.trainee = Trainee(model, self.ema.module if self.ema else None, optimizer, scaler)
        self.metrics = Metrics(phase.folder, enabled=self.processes.first)
        self.step = 0
        self.totals = [0.0, 0.0, 0.0]  # loss, correct, images of this epoch so far

    @property
    def averaged(self) -> nn.Module:
        return self.ema.module if self.ema else self.trainee.model

    def run(self) -> nn.Module:
        self._resume()
        network = self.processes.wrap(self.trainee.model, self.machine.some_unused).train()
        stream = self.batches.train(self.schedule.batch, self.step, self.steps, self.phase.seed, self.processes.share)
        started, first_step = time.monotonic(), self.step

        def step(given: tuple[Tensor, Tensor]) -> None:
            self._step(network, *given)
            rate = (self.step - first_step) * self.schedule.batch / (time.monotonic() - started)
            if self.step % self.per_epoch == 0:
                self._end_epoch(rate)

        run_steps(stream, step, self._save, self.phase.checkpoint_every_s)
        return self.averaged.eval()

    def _step(self, network: nn.Module, images: Tensor, labels: Tensor) -> None:
        torch.manual_seed(mix_seed(self.phase.seed, self.step, 4))
        optimizer, scaler = self.trainee.optimizer, self.trainee.scaler
        self.scheduler.step_update(self.step)
        with _autocast(self.processes.device, self.machine.precision):
            loss, logits = self.objective(network, images, labels, self.step)
        value = loss.item()
        if value != value or abs(value) == float("inf"):
            raise self._not_finite(value)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if self.schedule.clip_grad:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(network.parameters(), self.schedule.clip_grad)
        scaler.step(optimizer)
        scaler.update()
        if self.ema:
            self.ema.update(self.trainee.model)
        self.step += 1
        self._count(value, logits, labels)

    def _count(self, loss: float, logits: Tensor, labels: Tensor) -> None:
        correct = int((logits.detach().argmax(1) == labels).sum())
        for i, amount in enumerate((loss * len(labels), correct, len(labels))):
            self.totals[i] += amount
        if self.step % LOG_EVERY_STEPS == 0:
            lr = self.trainee.optimizer.param_groups[0]["lr"]
            (shared,) = self.processes.total(loss)
            self.metrics.add(self.phase.name, self.step, loss=shared / self.processes.world, lr=lr)
        seen = max(1.0, self.totals[2])
        epoch = min(self.step // self.per_epoch + 1, self.schedule.epochs)
        self.on_progress(
            self.step / self.steps,
            f"{self.phase.name} epoch {epoch}/{self.schedule.epochs}, loss {self.totals[0] / seen:.3f}, "
            f"accuracy {100 * self.totals[1] / seen:.1f} %",
        )

    def _end_epoch(self, rate: float) -> None:
        epoch = self.step // self.per_epoch
        loss, correct, seen = self.processes.total(*self.totals)
        self.totals = [0.0, 0.0, 0.0]
        record = {
            "epoch": epoch,
            "train_loss": loss / seen,
            "train_accuracy": correct / seen,
            "images_per_s": rate,
        }
        last = epoch == self.schedule.epochs
        if self.validate and self.processes.first and (last or epoch % self.schedule.validate_every_epochs == 0):
            record["validation_accuracy"] = self.validate(self.averaged.eval())
            self.trainee.model.train()  # without averaging it is the network that was just validated
        self.metrics.add(self.phase.name, self.step, **record)

    def _save(self) -> None:
        if self.processes.first:
            phase = self.phase
            save_state(phase.folder, phase.name, phase.fingerprint, self.step, self.totals, self.trainee)

    def _resume(self) -> None:
        """The first process reads; all restore."""
        found = read_state(self.phase.folder) if self.processes.first else None
        if found and found[0].phase != self.phase.name:
            found = None
        description = self.processes.share_bytes(found and found[0].model_dump_json(by_alias=True).encode())
        content = self.processes.share_bytes(found and found[1])
        if description is not None and content is not None:
            file, tensors = parse_state(description, content)
            require_same_run(file, self.phase.fingerprint, self.phase.folder)
            self.trainee.restore(file, tensors)
            self.step = file.step
            # totals are sums over processes only at the end of an epoch; before, each has its own
            self.totals = list(file.epoch_totals) if self.processes.first else [0.0, 0.0, 0.0]
        else:
            self.processes.share_module(self.trainee.model)
        self.metrics.resume(self.phase.name, self.step)

    def _not_finite(self, value: float) -> DeployNASError:
        found = read_state(self.phase.folder) if self.processes.first else None
        good = (
            f"the last good checkpoint is {self.phase.folder / found[0].tensors}, step {found[0].step}"
            if found and found[0].phase == self.phase.name
            else "no checkpoint was written yet"
        )
        lower = f"--set {self.phase.name}.lr={self.schedule.lr / 3:.2g}"
        return DeployNASError(
            f"the loss of {self.phase.name} became {value} at step {self.step + 1} of {self.steps}; {good}",
            hint=f"lower the learning rate ({lower}) or clip gradients, with --force or another --out",
        )


def _optimizer(model: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    try:
        return create_optimizer_v2(
            model,
            opt=schedule.optimizer,
            lr=schedule.lr,
            weight_decay=schedule.weight_decay,
            momentum=schedule.momentum,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"timm has no optimizer `{schedule.optimizer}` for this: {error}") from error


def _autocast(device: torch.device, precision: str) -> torch.autocast:
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision != "fp32")
