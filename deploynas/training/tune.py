"""Fine-tuning of any network from the weights that it has: the same loop, objective and resume, without a supernet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from deploynas.files import content_hash
from deploynas.progress import OnProgress, silent
from deploynas.supernet.checkpoint_file import write_tensors
from deploynas.training.batches import Batches
from deploynas.training.distribution import processes
from deploynas.training.evaluation import accuracy
from deploynas.training.finetune import NETWORK, PHASE
from deploynas.training.loop import Lesson, Machine, Phase, fit
from deploynas.training.objectives import Plain
from deploynas.training.oneshot import precision_on
from deploynas.training.recipe import Recipe
from deploynas.training.state import read_state, remove_state
from deploynas.training.teacher import Teacher


@dataclass(frozen=True)
class Tuned:
    model: nn.Module
    before: float | None  # validation accuracy; None: nothing was done to it
    validation_accuracy: float
    test_accuracy: float | None


def tune(
    model: nn.Module, batches: Batches, recipe: Recipe, teacher: Teacher, folder: Path, on_progress: OnProgress = silent
) -> Tuned:
    """Train, and write the weights into the folder as `network.safetensors`."""
    data, schedule = batches.data, recipe.finetune
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    settings = [
        data.describe().model_dump(),
        data.content_hash,
        recipe.finetune_settings(),
        teacher.describe().model_dump(),
        shapes,
    ]
    phase = Phase(folder, PHASE, content_hash(settings), recipe.seed, recipe.checkpoint_every_s)
    state = read_state(folder)
    if state and state[0].fingerprint != phase.fingerprint:
        remove_state(folder)  # of a run that was stopped, and that had measured its way to other widths
    with processes() as group:
        before = accuracy(model.eval().to(group.device), batches, data.validation)
        objective = Plain(schedule.label_smoothing, teacher.to(group.device), schedule.distillation)
        machine = Machine(group, precision_on(recipe.precision, group.device))
        made = fit(model, Lesson(objective, batches, schedule), phase, machine, on_progress).eval()
        write_tensors(folder / f"{NETWORK}.safetensors", made.state_dict())
        remove_state(folder)
        validated = accuracy(made, batches, data.validation)
        tested = accuracy(made, batches, data.test) if data.test else None
    return Tuned(made.cpu(), before, validated, tested)
