"""Pruning a trained network to a latency: widths measured, channels ranked, widths chosen, fine-tuned, timed again.

Beside the network that was asked for stand two that anybody gets for nothing, of the same latency: channels pruned by
magnitude and at random. All of them are fine-tuned in the same way and timed in one run, interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from deploynas.accuracy.oneshot import best_device
from deploynas.costs import Costs
from deploynas.device import Device
from deploynas.errors import GateError, InputError
from deploynas.export.budget import Attempt, within_budget
from deploynas.files import now
from deploynas.latency.bench import Benched, Case, bench_together
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.outcome import outcome_of
from deploynas.pipeline.candidates import latency_about
from deploynas.pipeline.exported import MODEL, Wishes, write_network
from deploynas.pipeline.profile import existing_table, profile_to
from deploynas.pipeline.prunable import Prunable, PrunableTransformer
from deploynas.pipeline.width_methods import CONTROLS, Ranker, Ranking
from deploynas.progress import OnProgress, silent
from deploynas.provenance import NetworkLineage
from deploynas.report.pruned import Margin, PrunedFile, PrunedNetwork, Role
from deploynas.report.pruned_words import control_warnings, latency_warnings
from deploynas.space import Architecture, StageSpace
from deploynas.space.widths import WIDTHS, chosen_widths, width_space
from deploynas.supernet.checkpoint import load_checkpoint, save_network
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet
from deploynas.supernet.width_network import width_network
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord, place_beside
from deploynas.training.evaluation import right_images
from deploynas.training.finetune import NETWORK, FinetuneResult, FineTuningTask, finetune
from deploynas.training.gates import GateSchedule
from deploynas.training.recipe import Augmentation, Recipe
from deploynas.training.state import OtherSettings
from deploynas.training.teacher import Teacher

if TYPE_CHECKING:
    from torch import nn

RESULT, TABLE, ORIGINAL = "pruned.json", "widths.json", "original"


@dataclass(frozen=True)
class PruneSettings:
    """How a network is pruned."""

    method: str = "exact"
    widths: int = WIDTHS  # of a block that are measured, at most
    gate_epochs: int = 1  # over the training images, to rank channels
    recipe: Recipe | None = None  # None: that of the network
    rounds: int = 3  # choices of widths to measure until one is within the budget
    runs: int = 300  # timed inferences of each file
    force: bool = False


@dataclass(frozen=True)
class PruningTarget:
    """A latency to reach: as such, or as the share of the network's own that is to go."""

    max_latency_ms: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        if (self.max_latency_ms is None) == (self.ratio is None):
            raise InputError(
                "give `--max-latency-ms` or `--ratio`, one of them",
                hint="`--max-latency-ms 8`: a budget; `--ratio 0.4`: the share of the measured latency that is to go",
            )
        if self.ratio is not None and not 0 < self.ratio < 1:
            raise InputError(
                f"the share of the latency that is to go lies between 0 and 1, got {self.ratio:g}",
                hint="`--ratio 0.4` takes 40 % away",
            )
        if self.max_latency_ms is not None and not 0 < self.max_latency_ms < float("inf"):
            raise InputError(f"the budget must be positive milliseconds, got {self.max_latency_ms:g}")

    def budget_ms(self, before_ms: float) -> float:
        """Of a network that takes so long; refused where there is nothing to do."""
        if self.ratio is not None:
            return (1 - self.ratio) * before_ms
        assert self.max_latency_ms is not None
        if before_ms <= self.max_latency_ms:
            raise InputError(
                f"the network takes {before_ms:.4g} ms, within the budget of {self.max_latency_ms:.4g} ms already",
                hint="`deploynas export` ships it as it is",
            )
        return self.max_latency_ms


@dataclass(frozen=True)
class Pruning:
    """One network on its way to a narrower one, in a folder."""

    network: Prunable
    device: Device
    folder: Path
    settings: PruneSettings = field(default_factory=PruneSettings)

    @cached_property
    def space(self) -> StageSpace:
        return width_space(self.network.architecture, self.settings.widths)

    @cached_property
    def recipe(self) -> Recipe:
        return self.settings.recipe or self.network.recipe.changed(["finetune.distillation.temperature=4"])

    @property
    def lineage(self) -> NetworkLineage:
        """The network as it was. Not the network of widths: its other widths were never trained, so that reports would
        compare with networks that nobody would ship.
        """
        source = self.network.source
        return NetworkLineage(imported=source.public() if source else None)

    @cached_property
    def batches(self) -> Batches:
        return Batches(self.network.data, self.space, self.recipe.augmentation, best_device(), self.recipe.workers)

    @cached_property
    def unchanged(self) -> Batches:
        """The images as they are, for evaluation."""
        return replace(self.batches, augmentation=Augmentation())

    def whole(self) -> Supernet:
        """A network of widths that nobody has pruned yet."""
        return width_network(self.network.model.cpu(), self.space)

    def table(self, on_progress: OnProgress = silent) -> LatencyTable:
        """What every width of every block takes, measured once."""
        path = self.folder / TABLE
        if path.exists() and not self.settings.force:
            return existing_table(path, self.device, self.space)
        return profile_to(path, self.device, self.space, on_progress=on_progress)

    def ranker(self, table: LatencyTable) -> Ranker:
        schedule = GateSchedule(self.settings.gate_epochs, self.recipe.finetune.batch, self.recipe.seed)
        return Ranker(self.whole, self.batches, table, schedule)

    def rank(self, ranker: Ranker, method: str, budget_ms: float, on_progress: OnProgress = silent) -> Ranking:
        record = self._record(role="w_star", lineage=self.lineage)
        path = self.place(method) / "w_star.safetensors"
        return ranker.rank(method, budget_ms, path, record.about(), on_progress)

    def place(self, method: str) -> Path:
        """The network that was asked for goes into the folder itself, the others beneath it."""
        return self.folder if method == self.settings.method else self.folder / method

    def measured_ms(self, architecture: Architecture, table: LatencyTable) -> float:
        """Of a whole network, before it has any weights: latency does not depend on them."""
        measured = measure_networks(self.device, self.space, [architecture], forms=table.forms)[0]
        return latency_about(measured, self.device.budget)

    def widths(self, ranking: Ranking, budget_ms: float) -> Architecture:
        """The widest that measure within the budget; `GateError` if none of some tries does."""

        def attempt(target_ms: float) -> Attempt[Architecture]:
            found = ranking.within(target_ms)
            predicted = ranking.table.predict(found)
            return Attempt(target_ms, predicted, self.measured_ms(found, ranking.table), found)

        return within_budget(budget_ms, attempt, self.settings.rounds)[-1].what

    def alike(self, ranking: Ranking, latency_ms: float) -> Architecture:
        """The widths of another method at the same latency, or nearest to it: a threshold may not get as low."""
        try:
            return ranking.within(latency_ms)
        except GateError:
            return self.space.smallest()

    def finetune(
        self, ranking: Ranking, widths: Architecture, folder: Path, on_progress: OnProgress = silent
    ) -> FinetuneResult:
        """With the network as it was for a teacher."""
        source = self.network.source
        task = FineTuningTask(
            ranking.checkpoint,
            widths,
            self.network.data,
            self.recipe,
            Teacher(self.network.model, self.network.name, source.sha256 if source else None),
            lineage=self.lineage,
        )
        try:
            return finetune(task, folder, self.settings.force, on_progress)
        except OtherSettings:  # of a run that was stopped, and that had measured its way to other widths
            return finetune(task, folder, True, on_progress)

    def save_original(self) -> Path:
        """As a network of this space, so that it is written and timed as the others are."""
        path = self.folder / ORIGINAL / f"{NETWORK}.safetensors"
        model, data = extract(self.whole(), self.space.heaviest()).eval(), self.network.data
        accuracies = {
            "validation_accuracy": float(right_images(model, self.unchanged, data.validation).mean()),
            "test_accuracy": float(right_images(model, self.unchanged, data.test).mean()) if data.test else None,
        }
        record = self._record(role="network", **accuracies, lineage=self.lineage)
        save_network(model, self.space.heaviest(), path, record.about())
        return path

    def _record(self, **own: object) -> CheckpointRecord:
        data = self.network.data
        return CheckpointRecord(
            data=data.describe(),
            data_place=place_beside(data.place, self.folder),
            recipe=self.recipe.finetune_settings(),
            **own,  # type: ignore[arg-type]
        )


def prune(pruning: Pruning, target: PruningTarget, on_progress: OnProgress = silent) -> PrunedFile:
    """Everything, and what it came to, in the folder; `GateError` where no widths keep the budget."""
    settings = pruning.settings
    require_unfinished(pruning)
    table = pruning.table(_part(on_progress, 0.0, 0.3))
    before_ms = pruning.measured_ms(pruning.space.heaviest(), table)
    budget_ms = target.budget_ms(before_ms)
    ranker = pruning.ranker(table)
    asked = pruning.rank(ranker, settings.method, budget_ms, _part(on_progress, 0.3, 0.4))
    chosen = pruning.widths(asked, budget_ms)
    alike = {method: pruning.rank(ranker, method, budget_ms) for method in CONTROLS if method != settings.method}
    tuned = {settings.method: pruning.finetune(asked, chosen, pruning.folder, _part(on_progress, 0.4, 0.6))}
    for i, (method, ranking) in enumerate(alike.items()):
        at = 0.6 + 0.15 * i
        widths = pruning.alike(ranking, table.predict(chosen))
        tuned[method] = pruning.finetune(ranking, widths, pruning.place(method), _part(on_progress, at, at + 0.15))
    on_progress(0.9, "writing and timing the files")
    return _result(pruning, target, budget_ms, table, tuned)


def _part(on_progress: OnProgress, start: float, end: float) -> OnProgress:
    return lambda share, what: on_progress(start + share * (end - start), what)


def _result(
    pruning: Pruning, target: PruningTarget, budget_ms: float, table: LatencyTable, tuned: dict[str, FinetuneResult]
) -> PrunedFile:
    paths = {ORIGINAL: pruning.save_original(), **{method: result.path for method, result in tuned.items()}}
    for path in paths.values():
        write_network(path, pruning.unchanged, pruning.device, path.parent, Wishes(), table.forms)
    model = MODEL[pruning.device.precision]
    cases = [Case(path.parent / model) for path in paths.values()]
    benched = bench_together(cases, pruning.device, runs=pruning.settings.runs)
    networks = [
        _network(pruning, method, path, benched, number, table) for number, (method, path) in enumerate(paths.items())
    ]
    models = [load_checkpoint(path).model for path in paths.values()]
    networks = with_margins(networks, models, pruning.unchanged)
    provenance = {**benched.results[0].provenance, "table_error": table.mean_error}
    return concluded(pruning, target, budget_ms, networks, provenance)


class InFolder(Protocol):
    """What any pruning is: a network, a device, a folder, and how."""

    @property
    def network(self) -> Prunable | PrunableTransformer: ...
    @property
    def device(self) -> Device: ...
    @property
    def folder(self) -> Path: ...
    @property
    def settings(self) -> PruneSettings: ...


def require_unfinished(pruning: InFolder) -> None:
    """A run that was stopped continues; a result that is there is not overwritten unasked."""
    path = pruning.folder / RESULT
    if path.exists() and not pruning.settings.force:
        raise InputError(f"{path} is there already", hint="another `--out`, or `--force` to prune again")


def concluded(
    pruning: InFolder,
    target: PruningTarget,
    budget_ms: float,
    networks: list[PrunedNetwork],
    provenance: dict[str, Any],
) -> PrunedFile:
    """The result, with its warnings, as a file in the folder."""
    original, pruned, *controls = networks
    network, device = pruning.network, pruning.device
    file = PrunedFile(
        network=network.name,
        source=network.source.public() if network.source else None,
        data=network.data.name.partition(":")[0],
        device=device,
        device_hash=device.hash,
        method=pruning.settings.method,
        ratio=target.ratio,
        budget_ms=budget_ms,
        outcome=outcome_of(pruned.timing, budget_ms, device.budget),
        networks=networks,
        warnings=[*latency_warnings(original, pruned), *control_warnings(pruned, controls)],
        provenance={**provenance, "date": now()},
    )
    file.save(pruning.folder / RESULT)
    return file


def _network(
    pruning: Pruning, method: str, path: Path, benched: Benched, number: int, table: LatencyTable
) -> PrunedNetwork:
    checkpoint = load_checkpoint(path)
    record, widths = CheckpointRecord.of(checkpoint), checkpoint.architecture
    timing, ratio = benched.results[number].timing, benched.ratios[number - 1] if number else None
    assert widths is not None and timing is not None and record.validation_accuracy is not None
    costs = Costs.of(pruning.space, widths)
    role: Role = "original" if not number else "pruned" if number == 1 else "control"
    return PrunedNetwork(
        role=role,
        method=method,
        file=(path.parent / MODEL[pruning.device.precision]).relative_to(pruning.folder).as_posix(),
        widths=[width for width in chosen_widths(widths) if width],
        params=costs.params,
        macs=costs.macs,
        predicted_ms=table.predict(widths),
        before_finetuning=record.inherited_accuracy,
        validation_accuracy=record.validation_accuracy,
        test_accuracy=record.test_accuracy,
        timing=timing,
        faster=ratio.faster if ratio else None,
        faster_interval=ratio.interval if ratio else None,
    )


def with_margins(networks: list[PrunedNetwork], models: Sequence[nn.Module], batches: Batches) -> list[PrunedNetwork]:
    """The pruned network against each control, image by image; `models` are those of the networks."""
    data = batches.data
    images, part = (data.test, "test") if data.test else (data.validation, "validation")
    right = [right_images(model, batches, images).astype(float) for model in models[1:]]

    def margin(other: np.ndarray) -> Margin:
        own = right[0] - other
        error = float(own.std(ddof=1)) / len(own) ** 0.5
        return Margin(part=part, images=len(own), difference=float(own.mean()), standard_error=error)  # type: ignore[arg-type]

    controls = [
        control.model_copy(update={"margin": margin(other)})
        for control, other in zip(networks[2:], right[1:], strict=True)
    ]
    return [*networks[:2], *controls]


def require_held(file: PrunedFile) -> None:
    """The gate: a budget that the measured file misses is a failure, whatever the table said."""
    if file.outcome == "missed":
        latency = file.pruned.timing.undisturbed.latency_ms
        raise GateError(
            f"the budget of {file.budget_ms:.4g} ms is missed: the pruned file takes {latency:.4g} ms undisturbed",
            hint="a larger budget, more --rounds, or a quieter machine",
        )
