"""`search --solver hnas`: a pool of random networks within the limits, scored untrained, and a few of them validated.

Which are validated is decided by an objective whose two numbers the validations choose, see
`accuracy.training_free.hnas`. A validation is a one-shot accuracy: the weights of a supernet, batch norm recalibrated
for the network alone. Every network of the pool is within all limits, so no budget is ever exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from deploynas import __version__
from deploynas.accuracy.refinement import MeasuredNetwork
from deploynas.accuracy.training_free.hnas import HnasOutcome, HnasSettings, PoolScores, Proposal, choose
from deploynas.accuracy.training_free.score import ScoringBatch, load_score
from deploynas.accuracy.training_free.whole_networks import scores_of_network
from deploynas.files import now
from deploynas.pipeline.measured_networks import MeasuredNetworks
from deploynas.pipeline.refine import Measures
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.pipeline.training_free import batch_source
from deploynas.pipeline.within import Within
from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Problem
from deploynas.search.random_networks import random_networks_within
from deploynas.search.result import describe
from deploynas.search.result_file import (
    HnasRecord,
    NetworkRecord,
    ProposedRecord,
    SearchFile,
    ValidatedRecord,
    input_record,
    network_record,
)
from deploynas.search.solver import Solution
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Estimator, ask

SOLVER = "hnas"


class Scorer(Protocol):
    def __call__(self, architecture: Architecture) -> tuple[float, float]:
        """kappa and M of the untrained network."""
        ...


@dataclass(frozen=True)
class UntrainedNetworks:
    """Scores networks on one batch of 64 training images, all with weights drawn from one seed."""

    supernet: TrainedSupernet
    metric: str
    seed: int = 0

    def __call__(self, architecture: Architecture) -> tuple[float, float]:
        kappa, metric = scores_of_network(
            [load_score("kappa"), load_score(self.metric)], architecture, self._batch, self.seed
        )
        return kappa, metric

    @cached_property
    def _batch(self) -> ScoringBatch:
        return batch_source(self.supernet.space, self.supernet.data, self.seed)(0)


@dataclass(frozen=True)
class _Alike:
    """Every network is worth the same: what is searched for is any network within the limits."""

    space: Space

    def predict(self, architecture: Architecture) -> float:
        return 0.0


@dataclass(frozen=True)
class Hnas:
    """Draws, scores and validates. `networks` measures accuracies, and measures each network once."""

    space: Space
    scorer: Scorer
    networks: Measures
    within: Within = field(default_factory=Within)
    settings: HnasSettings = field(default_factory=HnasSettings)

    def search(self, top: int = 1, on_progress: OnProgress = silent) -> SearchFile:
        """The best of the networks that were proposed, by their accuracy; at most as many as were validated."""
        estimator = ask(_Alike(self.space), scale="ordinal")
        problem = Problem.build(self.space, estimator, self.within.limits)
        pool = random_networks_within(problem, self.settings.pool, self.settings.seed)
        scores = self._scored(pool, lambda fraction, what: on_progress(fraction / 2, what))
        measured = dict[int, MeasuredNetwork]()

        def validate(number: int) -> float:
            (measured[number],) = self.networks.measure([pool[number]])
            return measured[number].accuracy

        found = choose(scores, validate, self.settings, lambda fraction, what: on_progress(0.5 + fraction / 2, what))
        told = _Told(pool, scores, measured, found)
        return SearchFile(
            space=self.space.describe(),
            space_hash=self.space.hash,
            networks=[told.network(problem, estimator, proposal) for proposal in found.ranked[:top]],
            hnas=told.record(self.settings.metric),
            estimator=None,
            ranked_by=told.in_words(self.settings.metric),
            tables=[input_record(table.path) for table in self.within.tables],
            provenance={
                "created": now(),
                "deploynas": __version__,
                "solver": SOLVER,
                "seed": self.settings.seed,
            },
        )

    def _scored(self, pool: Sequence[Architecture], on_progress: OnProgress) -> PoolScores:
        found = []
        for number, architecture in enumerate(pool):
            found.append(self.scorer(architecture))
            on_progress((number + 1) / len(pool), f"scores of network {number + 1} of {len(pool)}")
        kappa, metric = np.array(found).T
        return PoolScores(kappa, metric)


def hnas_search(
    supernet: TrainedSupernet,
    within: Within,
    settings: HnasSettings,
    top: int = 1,
    on_progress: OnProgress = silent,
) -> SearchFile:
    """With scores and one-shot accuracies of a supernet's own space and data."""
    scorer = UntrainedNetworks(supernet, settings.metric, settings.seed)
    found = Hnas(supernet.space, scorer, MeasuredNetworks(supernet), within, settings).search(top, on_progress)
    found.provenance["validated_with"] = supernet.identity
    return found


@dataclass(frozen=True)
class _Told:
    """What is written down about a search."""

    pool: Sequence[Architecture]
    scores: PoolScores
    measured: dict[int, MeasuredNetwork]
    found: HnasOutcome

    @property
    def first(self) -> Proposal:
        return self.found.ranked[0]

    def network(self, problem: Problem, estimator: Estimator, proposal: Proposal) -> NetworkRecord:
        """Its score is the objective with the sign turned, at the numbers that led to the first network."""
        number = proposal.network
        score = -float(self.scores.objective(self.first.mu, self.first.nu)[number])
        solution = Solution(self.pool[number], score, SOLVER, optimal=False, gap=None)
        record = network_record(describe(problem, estimator, solution))
        record.measured_accuracy, record.measured_accuracy_se = self.measured[number].accuracy, self.measured[number].se
        return record

    def record(self, metric: str) -> HnasRecord:
        return HnasRecord(
            metric=metric,
            mu=self.first.mu,
            nu=self.first.nu,
            pool=len(self.pool),
            scores=2 * len(self.pool),
            validations=len(self.found.proposals),
            proposals=[
                ProposedRecord(**vars(self._validated(one.network)), mu=one.mu, nu=one.nu)
                for one in self.found.proposals
            ],
            random=[self._validated(one.network) for one in self.found.random],
        )

    def in_words(self, metric: str) -> str:
        return f"-(kappa / M + {self.first.mu:.3g} (M^2 - {self.first.nu:.3g})^2), M: training-free `{metric}`"

    def _validated(self, number: int) -> ValidatedRecord:
        return ValidatedRecord(
            choices=[list(choice) for choice in self.pool[number].choices],
            kappa=float(self.scores.kappa[number]),
            metric=float(self.scores.metric[number]),
            measured_accuracy=self.measured[number].accuracy,
            measured_accuracy_se=self.measured[number].se,
        )
