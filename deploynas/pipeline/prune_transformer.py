"""Pruning a vision transformer's heads and hidden units to a latency (SiDT): by gates, beside magnitude and lots.

No table of widths is measured, since its blocks are none of ours: whole networks are exported and timed, and the target
is tightened until one measures within the budget. Until then latency is taken to follow the multiply-accumulates.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deploynas.accuracy.oneshot import best_device
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.export.budget import Attempt, within_budget
from deploynas.export.torch_exporter import exported_by_torch
from deploynas.files import write_bytes
from deploynas.latency.bench import Case, bench, bench_together
from deploynas.one_writer import writing_in
from deploynas.outcome import about
from deploynas.pipeline.exported import MODEL
from deploynas.pipeline.images import stream
from deploynas.pipeline.prunable import PrunableTransformer
from deploynas.pipeline.prune import ORIGINAL, PruneSettings, PruningTarget, concluded, require_unfinished, with_margins
from deploynas.pipeline.width_methods import CONTROLS
from deploynas.progress import OnProgress, silent
from deploynas.report.pruned import PrunedFile, PrunedNetwork, Role
from deploynas.search.widths import dimensions_within
from deploynas.supernet.checkpoint_file import write_tensors
from deploynas.supernet.transformer_widths import (
    TransformerGates,
    macs_of,
    macs_per_dimension,
    most_important,
    narrowed,
)
from deploynas.training.batches import Batches
from deploynas.training.evaluation import right_images
from deploynas.training.finetune import NETWORK
from deploynas.training.gates import GateSchedule, learn_gates
from deploynas.training.recipe import Augmentation, Recipe
from deploynas.training.teacher import Teacher
from deploynas.training.tune import Tuned, tune

if TYPE_CHECKING:
    from torch import Tensor, nn

METHODS = ("gates", "magnitude", "random")


@dataclass(frozen=True)
class Ranked:
    """A network with one method's gates folded in, and what it ranks dimensions by."""

    model: nn.Module
    importance: list[Tensor]

    def narrowed(self, widths: list[int]) -> nn.Module:
        return narrowed(self.model, most_important(self.importance, widths))


@dataclass(frozen=True)
class TransformerPruning:
    """One transformer on its way to a narrower one, in a folder."""

    network: PrunableTransformer
    device: Device
    folder: Path
    settings: PruneSettings = field(default_factory=PruneSettings)

    @cached_property
    def recipe(self) -> Recipe:
        return self.settings.recipe or self.network.recipe.changed(["finetune.distillation.temperature=4"])

    @cached_property
    def batches(self) -> Batches:
        recipe = self.recipe
        return Batches(self.network.data, self.network.space, recipe.augmentation, best_device(), recipe.workers)

    @cached_property
    def unchanged(self) -> Batches:
        return replace(self.batches, augmentation=Augmentation())

    @property
    def shape(self) -> tuple[int, int, int]:
        space = self.network.space
        return space.in_channels, space.height, space.width

    @cached_property
    def costs(self) -> list[int]:
        """Multiply-accumulates of one dimension of each layer."""
        return macs_per_dimension(self.network.model)

    @cached_property
    def macs(self) -> int:
        return macs_of(self.network.model, self.shape)

    @cached_property
    def rest(self) -> float:
        """Multiply-accumulates that no dimension takes with it."""
        gates = TransformerGates(self.network.model).values
        return self.macs - sum(cost * len(own) for cost, own in zip(self.costs, gates, strict=True))

    def rank(self, method: str, macs: float, on_progress: OnProgress = silent) -> Ranked:
        """By one method; gates are learned until what is left of them has at most so many multiply-accumulates."""
        model = copy.deepcopy(self.network.model).to(self.batches.device)
        gates, seed = TransformerGates(model), self.recipe.seed

        def enough(left: list[int]) -> bool:
            return self.rest + sum(cost * count for cost, count in zip(self.costs, left, strict=True)) <= macs

        match method:
            case "gates":
                schedule = GateSchedule(self.settings.gate_epochs, self.recipe.finetune.batch, seed)
                lived = learn_gates(gates, self.batches, schedule, enough=enough, on_progress=on_progress)
                gates.fold()
                return Ranked(model.cpu(), [own.cpu() for own in lived])
            case "magnitude":
                return Ranked(model.cpu(), [own.cpu() for own in gates.magnitudes()])
            case "random":
                return Ranked(model.cpu(), gates.lots(seed))
            case _:
                raise AssertionError(method)

    def within(self, ranked: Ranked, macs: float) -> list[int]:
        """The widths at which the network as a whole has at most so many multiply-accumulates."""
        return dimensions_within([own.numpy() for own in ranked.importance], self.costs, macs - self.rest)

    def write(self, model: nn.Module, path: Path) -> Path:
        file = exported_by_torch(model.cpu(), self.shape, stream(self.unchanged, self.network.data.validation))
        write_bytes(path, file.content)
        return path

    def measured_ms(self, model: nn.Module) -> float:
        with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
            timing = bench(self.write(model, Path(folder) / "model.onnx"), self.device, runs=self.settings.runs).timing
        assert timing is not None
        return about(timing, self.device.budget)

    def widths(self, ranked: Ranked, budget_ms: float, before_ms: float) -> list[int]:
        """Those that measure within the budget; `GateError` if none of some tries does."""

        def attempt(target_ms: float) -> Attempt[list[int]]:
            widths = self.within(ranked, self.macs * target_ms / before_ms)
            model = ranked.narrowed(widths)
            predicted = before_ms * macs_of(model, self.shape) / self.macs
            return Attempt(target_ms, predicted, self.measured_ms(model), widths)

        return within_budget(budget_ms, attempt, self.settings.rounds)[-1].what

    def place(self, method: str) -> Path:
        return self.folder if method == self.settings.method else self.folder / method

    def tune(self, ranked: Ranked, widths: list[int], method: str, on_progress: OnProgress = silent) -> Tuned:
        source = self.network.source
        teacher = Teacher(self.network.model, self.network.name, source.sha256 if source else None)
        model = ranked.narrowed(widths)
        return tune(model, self.batches, self.recipe, teacher, self.place(method), on_progress)


def prune_transformer(
    pruning: TransformerPruning, target: PruningTarget, on_progress: OnProgress = silent
) -> PrunedFile:
    """Everything, and what it came to, in the folder; `GateError` where no widths keep the budget."""
    method, device = pruning.settings.method, pruning.device
    if method not in METHODS:
        raise InputError(
            f"`--method {method}` needs a table of widths, which there is none of for transformers",
            hint=f"one of {', '.join(METHODS)}",
        )
    if device.precision != "fp32":
        raise InputError(f"transformers are exported in fp32, device `{device.name}` wants {device.precision}")
    with writing_in(pruning.folder, "prune"):
        return _pruned(pruning, target, on_progress)


def _pruned(pruning: TransformerPruning, target: PruningTarget, on_progress: OnProgress) -> PrunedFile:
    method = pruning.settings.method
    require_unfinished(pruning)
    before_ms = pruning.measured_ms(pruning.network.model)
    budget_ms = target.budget_ms(before_ms)
    most = pruning.macs * budget_ms / before_ms
    asked = pruning.rank(method, most, lambda share, what: on_progress(0.1 + 0.2 * share, what))
    widths = {method: pruning.widths(asked, budget_ms, before_ms)}
    ranked = {method: asked, **{other: pruning.rank(other, most) for other in CONTROLS if other != method}}
    macs = macs_of(asked.narrowed(widths[method]), pruning.shape)
    widths |= {name: pruning.within(own, macs) for name, own in ranked.items() if name != method}
    tuned = {
        name: pruning.tune(own, widths[name], name, _share(on_progress, i))
        for i, (name, own) in enumerate(ranked.items())
    }
    on_progress(0.9, "writing and timing the files")
    return _result(pruning, target, budget_ms, widths, tuned)


def _share(on_progress: OnProgress, number: int) -> OnProgress:
    """Of fine-tuning one of three networks."""
    return lambda share, what: on_progress(0.3 + 0.2 * (number + share), what)


def _result(
    pruning: TransformerPruning,
    target: PruningTarget,
    budget_ms: float,
    widths: dict[str, list[int]],
    tuned: dict[str, Tuned],
) -> PrunedFile:
    every = {ORIGINAL: _as_it_was(pruning), **tuned}
    widths = {ORIGINAL: [len(value) for value in TransformerGates(pruning.network.model).values], **widths}
    paths = {name: pruning.write(one.model, pruning.place(name) / MODEL["fp32"]) for name, one in every.items()}
    benched = bench_together([Case(path) for path in paths.values()], pruning.device, runs=pruning.settings.runs)
    networks = []
    for number, (name, one) in enumerate(every.items()):
        timing, ratio = benched.results[number].timing, benched.ratios[number - 1] if number else None
        assert timing is not None
        role: Role = "original" if not number else "pruned" if number == 1 else "control"
        networks.append(
            PrunedNetwork(
                role=role,
                method=name,
                file=paths[name].relative_to(pruning.folder).as_posix(),
                widths=widths[name],
                params=sum(parameter.numel() for parameter in one.model.parameters()),
                macs=macs_of(one.model, pruning.shape),
                predicted_ms=None,
                before_finetuning=one.before,
                validation_accuracy=one.validation_accuracy,
                test_accuracy=one.test_accuracy,
                timing=timing,
                faster=ratio.faster if ratio else None,
                faster_interval=ratio.interval if ratio else None,
            )
        )
    networks = with_margins(networks, [one.model for one in every.values()], pruning.unchanged)
    return concluded(pruning, target, budget_ms, networks, dict(benched.results[0].provenance))


def _as_it_was(pruning: TransformerPruning) -> Tuned:
    """The original beside the others, its weights too."""
    model, data = pruning.network.model, pruning.network.data
    write_tensors(pruning.place(ORIGINAL) / f"{NETWORK}.safetensors", model.state_dict())
    tested = float(right_images(model, pruning.unchanged, data.test).mean()) if data.test else None
    return Tuned(model, None, float(right_images(model, pruning.unchanged, data.validation).mean()), tested)
