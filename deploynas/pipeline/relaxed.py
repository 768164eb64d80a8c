"""`search --solver rarts`: a relaxed search on a supernet, the weight of its penalty bisected to the budgets.

A penalty promises nothing: of every weight gamma that is tried, the most probable network is held against the limits.
The gamma whose network comes nearest to them, from below or above, is taken; the exact search then repairs it, with the
probabilities as an estimator that ranks. Every gamma is a search of its own, kept in a folder that is named for all
that decides it, so a command that was stopped continues, and other budgets find what was already tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from deploynas import __version__
from deploynas.accuracy.oneshot import best_device
from deploynas.accuracy.relaxed import RelaxedEstimator
from deploynas.files import now
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.supernet import open_supernet
from deploynas.pipeline.within import Within
from deploynas.progress import OnProgress, silent
from deploynas.search.expected_cost import CostPenalty, ExpectedCost
from deploynas.search.feasibility import require_feasible
from deploynas.search.problem import Problem
from deploynas.search.result_file import ChangedDecision, ExpectedRecord, GammaRecord, RelaxedRecord
from deploynas.space import Architecture, Decisions, Space
from deploynas.space.softmax import softmax
from deploynas.supernet.network import Supernet, require_mixable
from deploynas.training.data import Data, load_data
from deploynas.training.relaxed import AlphaFile, RelaxedSettings, RelaxedTask, relax
from deploynas.training.untrained import untrained_supernet

TRIES = 6  # values of gamma, none included
CLOSE = 0.05  # of a budget: a network that misses it by no more needs no better gamma
FACTOR = 4.0  # between values of gamma, until one is too small and one large enough


@dataclass(frozen=True)
class Start:
    """The weights that a relaxed search starts from, its images, and where it keeps its work."""

    supernet: Supernet
    weights: str  # what identifies them
    data: Data
    run: RunFolder

    @classmethod
    def trained(cls, supernet: Path, data: str | None = None) -> Start:
        opened = open_supernet(supernet, data)
        return cls(opened.network, opened.checkpoint.weights_sha256, opened.data, RunFolder.around(opened.path))

    @classmethod
    def from_scratch(cls, space: Space, data: str, seed: int = 0) -> Start:
        require_mixable(space)
        loaded = load_data(data, space)
        return cls(
            untrained_supernet(space, seed), f"from scratch, seed {seed}", loaded, RunFolder.of_space(space.name)
        )

    @property
    def space(self) -> Space:
        return self.supernet.space


@dataclass(frozen=True)
class Tried:
    """A search at one gamma, and its most probable network."""

    gamma: float
    alpha: AlphaFile
    estimator: RelaxedEstimator
    network: Architecture
    used: float  # the largest share of a budget that adds up

    @property
    def fits(self) -> bool:
        return self.used <= 1

    @property
    def settled(self) -> bool:
        """Whether no other gamma is needed."""
        return abs(self.used - 1) <= CLOSE or (self.fits and self.gamma == 0)


def bisect_gamma(search: Callable[[float], Tried], start: float, tries: int = TRIES) -> list[Tried]:
    """None first; then from `start` up and down until gamma is bracketed, then the geometric mean of the bracket."""
    found = [search(0.0)]
    too_small, enough = 0.0, math.inf
    while len(found) < tries and not found[-1].settled:
        if math.isinf(enough):
            gamma = start if too_small == 0 else FACTOR * too_small
        else:
            gamma = enough / FACTOR if too_small == 0 else math.sqrt(too_small * enough)
        found.append(search(gamma))
        too_small, enough = (too_small, gamma) if found[-1].fits else (gamma, enough)
    return found


def best_tried(tried: Sequence[Tried]) -> Tried:
    """The one whose network is nearest to the limits, unless it fits without a penalty."""
    if tried[0].fits:
        return tried[0]
    return min(tried, key=lambda one: abs(one.used - 1))


@dataclass(frozen=True)
class Relaxed:
    """A relaxed search within limits."""

    start: Start
    within: Within
    settings: RelaxedSettings = field(default_factory=RelaxedSettings)
    tries: int = TRIES

    def search(self, on_progress: OnProgress = silent) -> RelaxedOutcome:
        require_mixable(self.start.space)
        require_feasible(self._problem)
        done = 0

        def one(gamma: float) -> Tried:
            nonlocal done
            share, before = 1 / self.tries, done / self.tries
            tried = self._at(gamma, lambda f, what: on_progress(before + share * f, f"gamma {gamma:.3g}, {what}"))
            done += 1
            return tried

        updates = self.settings.updates
        # the penalty begins at 1 for each cost; so weighed, it begins as large as cross-entropies of 1 would be
        losses = {"rarts": 1 + updates.lam, "darts": 1.0, "milenas": 1 + updates.lam}[updates.rule]
        found = bisect_gamma(one, losses, self.tries if self._problem.additive else 1)
        return RelaxedOutcome(self, found)

    def _at(self, gamma: float, on_progress: OnProgress) -> Tried:
        settings = replace(self.settings, updates=replace(self.settings.updates, gamma=gamma))
        penalty = self._penalty
        task = RelaxedTask(
            supernet=self.start.supernet,
            weights=self.start.weights,
            data=self.start.data,
            settings=settings,
            penalty=penalty.gradient,
            penalty_hash=penalty.content_hash,
            device=best_device(),
        )
        alpha = relax(task, self.start.run.relaxed / task.fingerprint, on_progress)
        estimator = RelaxedEstimator.from_alpha(self.start.space, settings.updates.rule, np.array(alpha.alpha))
        network = estimator.most_probable()
        used = max((cost.total(network) / cost.budget for cost in self._problem.additive), default=0.0)
        return Tried(gamma, alpha, estimator, network, used)

    @cached_property
    def _problem(self) -> Problem:
        """The limits; what is maximised within them, alpha will say."""
        space = self.start.space
        nothing = RelaxedEstimator.from_alpha(space, self.settings.updates.rule, np.zeros(len(space.decisions)))
        return Problem.build(space, nothing, self.within.limits)

    @property
    def _penalty(self) -> CostPenalty:
        return CostPenalty.of(self.start.space.decisions, self._problem.additive)

    def gamma_record(self, tried: Tried) -> GammaRecord:
        decisions, costs = self.start.space.decisions, self._problem.additive
        p = softmax(decisions, np.array(tried.alpha.alpha))
        return GammaRecord(
            gamma=tried.gamma,
            steps=tried.alpha.steps,
            primary_loss=tried.alpha.primary_loss,
            auxiliary_loss=tried.alpha.auxiliary_loss,
            expected=[
                ExpectedRecord(
                    name=cost.name,
                    expected=ExpectedCost(decisions, cost)(p),
                    most_probable=cost.total(tried.network),
                    budget=cost.budget,
                    unit=cost.unit,
                )
                for cost in costs
            ],
            most_probable=[list(choice) for choice in tried.network.choices],
            within=tried.fits,
        )


@dataclass(frozen=True)
class RelaxedOutcome:
    """All that was tried, and what is made of it."""

    relaxed: Relaxed
    tried: list[Tried]

    @property
    def chosen(self) -> Tried:
        return best_tried(self.tried)

    def save_estimator(self, path: Path) -> None:
        start = self.relaxed.start
        about = {
            "created": now(),
            "deploynas": __version__,
            "weights": start.weights,
            "data": start.data.name,
            "settings": self.chosen.alpha.settings,
        }
        replace(self.chosen.estimator, provenance=about).save(path)

    def record(self, repaired: Architecture) -> RelaxedRecord:
        """`repaired`: the network that the exact search made of it."""
        settings, chosen = self.relaxed.settings, self.chosen
        own = asdict(settings.updates)
        return RelaxedRecord(
            updates=own.pop("rule"),
            gamma=chosen.gamma,
            steps=chosen.alpha.steps,
            settings={
                **{name: own[name] for name in own if name != "gamma"},
                "epochs": settings.epochs,
                "batch": settings.batch,
                "seed": settings.seed,
            },
            tried=[self.relaxed.gamma_record(one) for one in self.tried],
            repaired=changed_decisions(self.relaxed.start.space.decisions, chosen.network, repaired),
        )


def changed_decisions(decisions: Decisions, before: Architecture, after: Architecture) -> list[ChangedDecision]:
    """What differs between two networks, decision by decision; null where a decision does not count."""
    found = []
    rows = decisions.rows([before.choices, after.choices])
    for column, counts in enumerate(decisions.counts(rows).T):
        was, now_ = (
            _words(decisions, column, int(row[column])) if own else None for row, own in zip(rows, counts, strict=True)
        )
        if was != now_:
            found.append(ChangedDecision(decision=decisions.names[column], before=was, after=now_))
    return found


def _words(decisions: Decisions, column: int, option: int) -> str:
    if column < len(decisions.groups):
        return str(decisions.groups[column].depths[option])
    group, position = decisions.places[column - len(decisions.groups)]
    return decisions.groups[group].choices[position].options[option].label
