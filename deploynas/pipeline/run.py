"""Everything in one go: profile, train, estimate, then search, fine-tune and export for each device.

The supernet and the data are loaded once. Each step is done once for what it reads (see `step`), so the same call
resumes where it was stopped, and a further device costs only its own steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.device import Device
from deploynas.errors import GateError, InputError
from deploynas.latency.table import LatencyTable
from deploynas.one_writer import writing_in
from deploynas.pipeline.delivery import Delivery
from deploynas.pipeline.device_run import DeviceRun, ExportStep, RunSettings, SearchStep
from deploynas.pipeline.estimate import EstimateStep
from deploynas.pipeline.goal import AtMost, Goal
from deploynas.pipeline.import_ofa import imported_into
from deploynas.pipeline.limits import split_budget
from deploynas.pipeline.profile import ProfileStep, doubt_about
from deploynas.pipeline.refine import refinement_in_words, require_rounds
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.step import Step, changed_inputs, perform
from deploynas.pipeline.supernet import open_supernet
from deploynas.pipeline.train import TrainStep
from deploynas.pipeline.watcher import Unwatched, Watcher
from deploynas.report.index import write_index
from deploynas.search.solver import load_solver
from deploynas.space import Space
from deploynas.training.data import Data, load_data
from deploynas.training.oneshot import training_result
from deploynas.training.recipe import Recipe

REPORT_NETWORKS = 16  # random sub-networks of w*: the estimate that follows measures more of them


@dataclass(frozen=True)
class DeviceWish:
    device: Device
    budget_ms: float | None = None

    @classmethod
    def parse(cls, text: str) -> DeviceWish:
        """`cpu-1t:2.5`, `cpu-1t` or the path of a YAML file, with or without a budget."""
        name, budget = split_budget(text)
        return cls(Device.load(name), budget)

    def goal(self, asked: Goal | None) -> Goal | None:
        """The device's own budget, else what is asked of all devices, else what the device file says."""
        if self.budget_ms is not None and asked is not None:
            raise InputError(
                f"`{self.device.name}` has a budget of its own, and something else is asked of every device",
                hint="`--device DEVICE:MS` for each, or `--max-latency-ms`, `--min-accuracy` or `--within` for all",
            )
        if self.budget_ms is not None:
            return AtMost(self.budget_ms)
        in_file = self.device.budgets.latency_ms
        return asked or (AtMost(in_file) if in_file is not None else None)


@dataclass(frozen=True)
class RunResult:
    folder: RunFolder
    bundles: list[Delivery] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  # devices without a bundle, and why
    index: Path | None = None  # a page that lists the bundles

    def require_all(self) -> RunResult:
        """Raise if a device did not get its bundle."""
        if self.missed:
            raise GateError("; ".join(self.missed), hint="a larger budget: `--device DEVICE:MS`")
        return self


def run(
    space: str | Space,
    data: str | Data,
    devices: str | Device | Sequence[str | Device],
    out: str | Path,
    settings: RunSettings | None = None,
    watcher: Watcher | None = None,
) -> RunResult:
    """Everything, as the command does; `GateError` if a device's budget cannot be met, after all others are done.

    Devices are names, paths or `Device` objects; `cpu-1t:2.5` is a name with its budget in milliseconds.
    """
    space = Space.load(space) if isinstance(space, str) else space
    listed = [devices] if isinstance(devices, (str, Device)) else devices
    wishes = [DeviceWish.parse(d) if isinstance(d, str) else DeviceWish(d) for d in listed]
    settings = settings or RunSettings(default_recipe(space))
    return run_steps(space, data, wishes, RunFolder(Path(out)), settings, watcher or Unwatched()).require_all()


def default_recipe(space: Space, source: str | None = None, changes: Sequence[str] = ()) -> Recipe:
    """As for `train`, but fewer random sub-networks are measured, since the estimate measures more of them."""
    fewer = [] if source else [f"report_networks={REPORT_NETWORKS}"]
    return Recipe.for_space(space.name, source, [*fewer, *changes])


def run_steps(
    space: Space,
    data: str | Data,
    wishes: Sequence[DeviceWish],
    folder: RunFolder,
    settings: RunSettings,
    watcher: Watcher,
) -> RunResult:
    """The same without raising for a device that has missed its budget. Mistakes are found before anything is done."""
    load_solver(settings.solver)
    if not wishes:
        raise InputError("no device to run for", hint="`deploynas devices` lists them")
    if len({wish.device.name for wish in wishes}) < len(wishes):
        raise InputError("a device is named twice")
    if settings.refine:
        require_rounds(settings.refine)
    goals = [wish.goal(settings.goal) for wish in wishes]
    loaded = load_data(data, space) if isinstance(data, str) else data
    with writing_in(folder.path, "run"):
        return _all_steps(space, loaded, list(zip(wishes, goals, strict=True)), folder, settings, watcher)


def _all_steps(
    space: Space,
    loaded: Data,
    wishes: Sequence[tuple[DeviceWish, Goal | None]],
    folder: RunFolder,
    settings: RunSettings,
    watcher: Watcher,
) -> RunResult:
    steps = _Steps(folder, settings.force, watcher)
    for wish, _ in wishes:
        steps.profile(ProfileStep(folder, wish.device, space))
    steps.train(TrainStep(folder, space, loaded, settings.recipe, settings.force))
    supernet = open_supernet(folder, loaded)
    steps.estimate(EstimateStep(folder, supernet, settings.estimation))
    result = RunResult(folder)
    for wish, goal in wishes:
        try:
            of = DeviceRun(folder, wish.device, goal, supernet, settings)
            result.bundles.append(steps.ship(of))
        except GateError as error:
            result.missed.append(f"{wish.device.name}: {error.message}")
            watcher.note(f"error: {result.missed[-1]}")
    index = write_index(folder.bundles) if result.bundles else None
    return RunResult(folder, result.bundles, result.missed, index)


@dataclass(frozen=True)
class _Steps:
    """Does steps one after another, and says what came of each."""

    folder: RunFolder
    force: bool
    watcher: Watcher

    def profile(self, step: ProfileStep) -> None:
        (path,) = step.outputs()
        if self._done(step, f"profile {step.device.name}", path):
            return
        table = LatencyTable.load(path)
        self.watcher.note(f"profile: wrote {path}")
        doubt = doubt_about(table, f"delete {path} to measure again")
        if doubt:
            self.watcher.note(doubt)

    def train(self, step: TrainStep) -> None:
        imported = imported_into(self.folder, step.space)
        if imported:
            self.watcher.note(f"train: {self.folder.supernet} was imported from {imported}, and is taken as it is")
            return
        if self._done(step, f"train {step.space.name}", self.folder.supernet):
            return
        result = training_result(self.folder.supernet)
        networks = result.subnetworks
        self.watcher.note(
            f"train: the heaviest network {100 * result.w_h_accuracy:.2f} %, {networks.networks} random sub-networks "
            f"{100 * networks.mean:.2f} ± {100 * networks.std:.2f} %"
        )

    def estimate(self, step: EstimateStep) -> None:
        if self._done(step, "estimate", self.folder.estimator):
            return
        validation = load_estimator(self.folder.estimator).validation
        trust = ""
        if validation and validation.kendall_tau is not None:
            trust = f", Kendall tau {validation.kendall_tau:.2f} on {validation.networks} unseen networks"
        self.watcher.note(f"estimate: wrote {self.folder.estimator}{trust}")

    def ship(self, of: DeviceRun) -> Delivery:
        """Search, fine-tune and export for one device."""
        search, export, name = SearchStep(of), ExportStep(of), of.device.name
        if not self._done(search, f"search for {name}", of.files.search):
            found = of.found()
            predicted = found.networks[0].limits[0].predicted  # latency comes first
            if found.refinement:
                self.watcher.note(f"search: {refinement_in_words(found.refinement)}")
            self.watcher.note(f"search: {found.budget_reason}")
            self.watcher.note(f"search: the network is predicted at {predicted:.4g} of {found.budget_ms:.4g} ms")
        self._done(export, f"fine-tune and export for {name}", export.folder)
        return export.delivery()

    def _done(self, step: Step, title: str, place: Path) -> bool:
        """Whether nothing was left to do."""
        changed = changed_inputs(step, self.folder)
        if changed:
            self.watcher.note(f"{title}: again, since what it reads has changed: {', '.join(changed)}")
        with self.watcher.step(title) as on_progress:
            worked = perform(step, self.folder, self.force, on_progress)
        if not worked:
            self.watcher.note(f"{title}: {place} is there, made from the same inputs")
        return not worked
