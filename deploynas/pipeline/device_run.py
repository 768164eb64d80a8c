"""What a run does for one device: search for what is asked of the network, fine-tune what was found, export it.

The budget that the export is held to is a result of the search, since a goal may be an accuracy; it is read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from deploynas import __version__
from deploynas.accuracy.estimation import EstimationSettings
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.device import Device
from deploynas.files import content_hash, now, sha256_of
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.candidates import Candidates
from deploynas.pipeline.delivery import Delivery, Order, deliver
from deploynas.pipeline.exported import Wishes
from deploynas.pipeline.finetune import FineTuneOptions, FinetuneStep, finetuning_inputs
from deploynas.pipeline.goal import Goal
from deploynas.pipeline.limits import device_limits, tightest
from deploynas.pipeline.measured_networks import MeasuredNetworks
from deploynas.pipeline.refine import can_refine, refined_request
from deploynas.pipeline.run_folder import DeviceFolder, RunFolder
from deploynas.pipeline.search import budget_of_request, state_budget
from deploynas.pipeline.search_request import BudgetedTable, SearchRequest, SolverChoice
from deploynas.pipeline.sources import KnownTable, Sources
from deploynas.pipeline.step import Inputs, perform
from deploynas.pipeline.supernet import SupernetSource, TrainedSupernet
from deploynas.progress import OnProgress
from deploynas.report.document import ReportFile, Round
from deploynas.search.problem import Limit
from deploynas.search.result_file import RefinementRound, SearchFile, input_record, network_record
from deploynas.space import Architecture
from deploynas.training.recipe import Recipe


@dataclass(frozen=True)
class RunSettings:
    """What the steps of a run are told."""

    recipe: Recipe
    teacher: str | None = None  # for fine-tuning; None: w_h
    estimation: EstimationSettings = field(default_factory=lambda: EstimationSettings(passes=16, unseen=50))
    goal: Goal | None = None  # of every device without a budget of its own; None: the knee
    refine: int = 3  # rounds of measuring networks of the frontier, at most; 0: none
    limits: tuple[Limit, ...] = ()  # besides latency, on every device
    solver: str = "exact"
    wishes: Wishes = field(default_factory=Wishes)
    force: bool = False


@dataclass(frozen=True)
class DeviceRun:
    run: RunFolder
    device: Device
    goal: Goal | None  # None: nobody has asked for anything
    supernet: TrainedSupernet
    settings: RunSettings

    @cached_property
    def table(self) -> LatencyTable:
        return LatencyTable.load(self.files.table)

    @property
    def files(self) -> DeviceFolder:
        return self.run.device(self.device.name)

    def found(self) -> SearchFile:
        """What the search has left behind."""
        return SearchFile.load(self.files.search)

    @cached_property
    def refines(self) -> bool:
        """Whether the estimator is to be refined for this device, and can be."""
        return self.settings.refine > 0 and can_refine(load_estimator(self.run.estimator))

    @property
    def estimator(self) -> Path:
        """That the search of this device uses."""
        return self.files.estimator if self.refines else self.run.estimator

    @property
    def limits(self) -> tuple[Limit, ...]:
        return tightest([*self.settings.limits, *device_limits(self.device)])

    @property
    def fine_tuning(self) -> FineTuneOptions:
        settings = self.settings
        return FineTuneOptions(settings.recipe, settings.teacher, search=self.files.search, force=settings.force)

    def request(self) -> SearchRequest:
        """The question, to the estimator of the run."""
        table, solver = BudgetedTable(self.files.table, self.table), SolverChoice(self.settings.solver)
        path, space = self.run.estimator, self.supernet.space
        return SearchRequest(space, load_estimator(path), path, [table], self.limits, solver, self.goal)

    def candidates(self, on_progress: OnProgress) -> Candidates:
        known = KnownTable(self.files.table, self.table, None)
        source = SupernetSource(self.supernet.path, self.supernet.data, self.supernet)
        sources = Sources(source, self.estimator, self.files.search, (known,), self.limits, self.settings.teacher)

        def fine_tune(architecture: Architecture) -> Path:
            step = FinetuneStep(self.run, self.device.name, self.supernet, architecture, self.fine_tuning)
            perform(step, self.run, self.settings.force, on_progress)
            return step.network

        solver = self.settings.solver
        return Candidates(
            self.device, self.supernet.space, sources, known, fine_tune, solver=solver, on_progress=on_progress
        )


@dataclass(frozen=True)
class SearchStep:
    """The network for the device, measured whole before it is believed."""

    of: DeviceRun

    @property
    def name(self) -> str:
        return f"search.{self.of.device.name}"

    def inputs(self) -> Inputs:
        of = self.of
        question = {
            "goal": repr(of.goal),
            "limits": {limit.name: limit.budget for limit in of.limits},
            "solver": of.settings.solver,
            "refine": of.settings.refine,
        }
        return {
            "estimator": sha256_of(of.run.estimator),
            "supernet": of.supernet.checkpoint.weights_sha256,  # in which it is refined, on these data
            "data": of.supernet.data.content_hash,
            "table": sha256_of(of.files.table),
            "device": of.device.hash,
            "question": content_hash(question),
        }

    def work(self, on_progress: OnProgress) -> None:
        of, space = self.of, self.of.supernet.space
        request, rounds = of.request(), tuple[RefinementRound, ...]()
        if of.refines:
            networks = MeasuredNetworks(of.supernet)
            request, refinement = refined_request(request, networks, of.settings.refine, of.estimator, on_progress)
            rounds = refinement.rounds
        candidates = of.candidates(on_progress)
        budget = budget_of_request(request)
        assert budget is not None, "there is one table"
        result = candidates.solve(budget.promised_ms, budget.asked_ms)
        document = SearchFile(
            space=space.describe(),
            space_hash=space.hash,
            networks=[network_record(result)],
            refinement=list(rounds),
            estimator=input_record(of.estimator),
            tables=[input_record(of.files.table)],
            provenance={
                "created": now(),
                "deploynas": __version__,
                "solver": of.settings.solver,
                "rounds": [probe.model_dump() for probe in candidates.probes],
            },
        )
        state_budget(document, request, budget)
        document.save(of.files.search)

    def outputs(self) -> Sequence[Path]:
        return [self.of.files.search, *([self.of.estimator] if self.of.refines else [])]


@dataclass(frozen=True)
class ExportStep:
    """From the network that was found to a bundle within the budget."""

    of: DeviceRun

    @property
    def name(self) -> str:
        return f"export.{self.of.device.name}"

    @property
    def folder(self) -> Path:
        return self.of.run.bundle(self.of.device.name)

    def inputs(self) -> Inputs:
        of = self.of
        return {
            "search": sha256_of(of.files.search),  # which names the estimator by hash, and the budget
            "table": sha256_of(of.files.table),
            "device": content_hash(of.device.describe()),
            "wishes": content_hash(asdict(of.settings.wishes)),
            **finetuning_inputs(of.supernet, of.fine_tuning),
        }

    def work(self, on_progress: OnProgress) -> None:
        of, found = self.of, self.of.found()
        candidates = of.candidates(on_progress)
        candidates.probes += [Round.model_validate(made) for made in found.provenance["rounds"]]
        candidates.given = candidates.fine_tune(of.supernet.space.architecture(found.networks[0].choices))
        order = Order(found.budget_ms, of.supernet.batches, of.settings.wishes)
        deliver(candidates, order, self.folder, on_progress)

    def outputs(self) -> Sequence[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def delivery(self) -> Delivery:
        return Delivery(self.folder, ReportFile.load(self.folder))
