"""The search for an ensemble in a trained supernet, as files ask for it and as a file of results keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploynas import __version__
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.posterior import Posterior, PosteriorSettings
from deploynas.accuracy.shipped_estimators import find_estimator
from deploynas.files import now
from deploynas.pipeline.ensembles import STEPS, Ensemble, EnsembleSearch, EnsembleWishes
from deploynas.pipeline.network_predictions import NetworkPredictions
from deploynas.pipeline.posterior import posterior_of
from deploynas.pipeline.search_request import BudgetedTable
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.search.ensemble_record import EnsembleRecord
from deploynas.search.frontier import frontier
from deploynas.search.joint_budget import JointBudget, Running
from deploynas.search.problem import Limit, Problem
from deploynas.search.result import describe
from deploynas.search.result_file import NetworkRecord, SearchFile, input_record, network_record
from deploynas.search.solver import Solution
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import ask

SHARE = 0.6  # of the progress, that fitting the posterior takes


@dataclass(frozen=True)
class EnsembleOrder:
    """`table` has its budget, for all members together."""

    supernet: TrainedSupernet
    table: BudgetedTable
    running: Running
    wishes: EnsembleWishes
    estimator: Path | None = None  # whose best networks are candidates too

    @property
    def space(self) -> Space:
        return self.supernet.space

    def search(self, on_progress: OnProgress = silent) -> SearchFile:
        assert self.table.budget_ms is not None, "a joint budget is asked for"
        budget = JointBudget.of(self.space, self.table.table, self.table.budget_ms, self.running)
        budget.require_feasible(self.space, self.wishes.members)
        posterior = self._posterior(lambda fraction, what: on_progress(SHARE * fraction, what))
        predictions = NetworkPredictions(self.supernet)
        asked = EnsembleSearch(posterior, predictions, budget, self.wishes, self.space, self._also())
        members, record = asked.search(lambda fraction, what: on_progress(SHARE + (1 - SHARE) * fraction, what))
        return self._document(members, record, posterior)

    def _posterior(self, on_progress: OnProgress) -> Posterior:
        if self.wishes.sampling == "random":
            return Posterior.uniform(self.space.decisions)
        return posterior_of(self.supernet, PosteriorSettings(seed=self.wishes.seed), on_progress)

    def _also(self) -> list[Architecture]:
        """The best networks of the estimator, for rising latencies up to the budget."""
        if self.estimator is None:
            return []
        assert self.table.budget_ms is not None
        front = frontier(self.space, load_estimator(self.estimator), self.table.table)
        within = [i for i, latency in enumerate(front.latencies_ms) if latency <= self.table.budget_ms]
        if not within:
            return []
        return [point.architecture for point in front[: within[-1] + 1].thin(STEPS)]

    def _document(self, members: Ensemble, record: EnsembleRecord, posterior: Posterior) -> SearchFile:
        return SearchFile(
            space=self.space.describe(),
            space_hash=self.space.hash,
            networks=self._networks(members, record, posterior),
            ensemble=record,
            estimator=input_record(self.estimator, find_estimator(self.estimator)) if self.estimator else None,
            ranked_by="log of posterior by prior" if posterior.steps else "nothing: all networks are equally likely",
            tables=[input_record(self.table.path)],
            provenance={
                "created": now(),
                "deploynas": __version__,
                "solver": f"ensemble-{self.wishes.sampling}",
                "seed": self.wishes.seed,
                "predicted_with": self.supernet.identity,
            },
        )

    def _networks(self, members: Ensemble, record: EnsembleRecord, posterior: Posterior) -> list[NetworkRecord]:
        estimator = ask(_Evidence(self.space, posterior), scale="ordinal")
        problem = Problem.build(self.space, estimator, [Limit(self.table.table, self.table.budget_ms or 0.0)])
        scores, found = record.scores["validation"], list[NetworkRecord]()
        for network, own_error in zip(members, scores.member_errors, strict=True):
            solver = f"ensemble-{self.wishes.sampling}"
            solution = Solution(network, problem.score(network), solver, optimal=False, gap=None)
            one = network_record(describe(problem, estimator, solution))
            one.measured_accuracy = 1 - own_error
            one.measured_accuracy_se = (own_error * (1 - own_error) / scores.images) ** 0.5
            found.append(one)
        return found


@dataclass(frozen=True)
class _Evidence:
    space: Space
    posterior: Posterior

    def predict(self, architecture: Architecture) -> float:
        rows = self.space.rows([architecture])
        return float(self.posterior.log_evidence(self.space.decisions, rows)[0])
