"""An estimator brought up to date with whole networks that were measured where the search goes.

The best networks by prediction are those whose predictions err upwards, however right predictions are on average. So
networks of the frontier are measured, and contributions are allowed to differ there from what they are on average:

    measured = predicted + slopes . step + left over

with a common offset, a common factor per index and a step of every contribution, normal around zero with the
covariance that contributions of the space have, times a share; what is left over is normal too. The share and the
size of what is left over are not known: they are averaged over, weighted by how well they explain what was measured.
For one network this is k = S x / (x' S x + r), m <- m + k (y - x' m); the link bends, so it is repeated from where it
leads. An additive estimator comes back as an indexed one whose link is a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.index_terms import Terms
from deploynas.accuracy.indexed import Index, IndexedEstimator, Refit
from deploynas.accuracy.shrinkage import covariance_of_effects
from deploynas.errors import InputError
from deploynas.space import Architecture
from deploynas.space.link import Link

OFFSET_SD = 0.03  # of accuracy: networks alone have batch-norm statistics of their own, which the samples have not
FACTOR_SD = 0.5  # of an index's own scale near the frontier
SHARES = np.geomspace(0.03, 2.0, 9)  # of the contributions' covariance, as standard deviations
LEFT_OVER = np.geomspace(0.002, 0.03, 9)  # standard deviations of accuracy
LINEARISATIONS = 6
REFITS = 32


@dataclass(frozen=True)
class MeasuredNetwork:
    """A sub-network and its one-shot accuracy, batch norm recalibrated."""

    architecture: Architecture
    accuracy: float  # 0..1
    se: float  # of the images that it was measured on


def refine(estimator: StoredEstimator, measured: Sequence[MeasuredNetwork]) -> IndexedEstimator:
    """The estimator of `estimate`, updated with all networks measured so far."""
    start = _as_indexed(estimator)
    if not measured:
        return start
    for network in measured:
        start.space.require_member(network.architecture)
    rows = start.space.rows([network.architecture for network in measured])
    y = np.array([network.accuracy for network in measured])
    steps = _Steps(start)
    step = np.zeros(steps.size)
    for _ in range(LINEARISATIONS):
        slopes, predicted = steps.slopes(step, rows)
        posterior = _posterior(steps.covariances(slopes), slopes, y - predicted + slopes @ step)
        # a straight line may lead too far where the link bends
        ways = [step + part * (posterior.mean - step) for part in (1.0, 0.5, 0.25)]
        step = min(ways, key=lambda way: float(((steps.slopes(way, rows)[1] - y) ** 2).sum()))
    provenance = {**start.provenance, "refined_with_networks": len(measured)}
    return replace(
        steps.moved(step, step + posterior.deviations(np.random.default_rng(0))),
        lack_of_fit=posterior.left_over,
        provenance=provenance,
    )


def _as_indexed(estimator: StoredEstimator) -> IndexedEstimator:
    if isinstance(estimator, IndexedEstimator):
        found = estimator
    elif isinstance(estimator, BilinearEstimator):
        index = Index(estimator.base, estimator.depth, estimator.block)
        found = IndexedEstimator(estimator.space, (index,), Link(0.0, np.ones(1)), provenance=estimator.provenance)
    else:
        raise InputError(
            "only sums of contributions, and indices of them, can be refined",
            hint="`deploynas estimate` without `--method`, or with contributions, bilinear or indexed",
        )
    # the curve is of the estimator as it was
    validation = estimator.validation
    return replace(found, validation=validation.model_copy(update={"curve": None}) if validation else None)


class _Steps:
    """Steps of contributions, in coordinates that sum to zero per decision, and of the link's constant."""

    def __init__(self, estimator: IndexedEstimator) -> None:
        self.estimator = estimator
        # an estimator without deviations between input sizes stays without them
        self.terms = Terms(estimator.space, by_size=any(index.by_size for index in estimator.indices))
        contributions = [self.terms.contributions(index) for index in estimator.indices]
        self.weights = np.array([self.terms.contributed.T @ own for own in contributions])
        self.size = self.weights.size + 1

    @cached_property
    def effects(self) -> list[np.ndarray]:
        """The covariance of each index's contributions."""
        known, nothing = [kind @ kind.T for kind in self.terms.effects], np.zeros((self.terms.size, self.terms.size))
        return [covariance_of_effects(known, weights, nothing) for weights in self.weights]

    def moved(self, step: np.ndarray, draws: np.ndarray) -> IndexedEstimator:
        refits = tuple(Refit(self._indices(draw), self._link_step(draw - step)) for draw in draws)
        link = replace(self.estimator.link, constant=self.estimator.link.constant + float(step[-1]))
        return replace(self.estimator, indices=self._indices(step), link=link, refits=refits)

    def _indices(self, step: np.ndarray) -> tuple[Index, ...]:
        found = []
        for index, own in zip(self.estimator.indices, step[:-1].reshape(self.weights.shape), strict=True):
            moved = self.terms.contributions(index) + self.terms.contributed @ own
            found.append(self.terms.index(index.base, moved))
        return tuple(found)

    def _link_step(self, step: np.ndarray) -> np.ndarray:
        found = np.zeros(self.estimator.link.parameters)
        found[0] = step[-1]
        return found

    def slopes(self, step: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How fast the accuracies rise with every part of a step, and what they are."""
        there = self.moved(step, np.empty((0, self.size)))
        u, x = there.totals(rows), self.terms.design(rows)
        by_index = there.link.slopes(u)
        columns = [by_index[:, i : i + 1] * x for i in range(len(self.weights))]
        return np.concatenate([*columns, there.link.gradient(u)[:, :1]], axis=1), there.link(u)

    def covariances(self, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of a step: what is always expected, and what a share of is."""
        always, shared, q = np.zeros((self.size, self.size)), np.zeros((self.size, self.size)), self.weights.shape[1]
        for i, (weights, effects) in enumerate(zip(self.weights, self.effects, strict=True)):
            own = slice(i * q, (i + 1) * q)
            always[own, own] = FACTOR_SD**2 * np.outer(weights, weights)
            shared[own, own] = effects
        always[-1, -1] = (OFFSET_SD / float(slopes[:, -1].mean())) ** 2
        return always, shared


@dataclass(frozen=True)
class _Given:
    """The posterior of a step if share and left over were known."""

    chance: float
    covariance: np.ndarray
    gain: np.ndarray
    mean: np.ndarray
    left_over: float


@dataclass(frozen=True)
class _Posterior:
    given: tuple[_Given, ...]
    slopes: np.ndarray
    y: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return np.sum([one.chance * one.mean for one in self.given], axis=0)

    @property
    def left_over(self) -> float:
        return float(np.sum([one.chance * one.left_over**2 for one in self.given])) ** 0.5

    def deviations(self, rng: np.random.Generator) -> np.ndarray:
        """From the mean, in pairs on both sides of it: draws of what was expected, updated with the observations."""
        found = []
        for one in rng.choice(len(self.given), size=REFITS // 2, p=[one.chance for one in self.given]):
            here = self.given[one]
            values, vectors = np.linalg.eigh(here.covariance)
            free = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.normal(size=len(values)))
            noise = here.left_over * rng.normal(size=len(self.y))
            off = free - here.gain @ (self.slopes @ free + noise) + here.mean - self.mean
            found += [off, -off]
        return np.array(found)


def _posterior(covariances: tuple[np.ndarray, np.ndarray], slopes: np.ndarray, y: np.ndarray) -> _Posterior:
    always, shared = covariances
    of_always, of_shared = (slopes @ part @ slopes.T for part in covariances)
    found, surprises = [], []
    for share in SHARES:
        covariance = always + share**2 * shared
        crossed = covariance @ slopes.T
        for left_over in LEFT_OVER:
            seen = of_always + share**2 * of_shared + left_over**2 * np.eye(len(y))
            gain = np.linalg.solve(seen, crossed.T).T
            surprises.append(0.5 * (np.linalg.slogdet(seen)[1] + y @ np.linalg.solve(seen, y)))
            found.append(_Given(0.0, covariance, gain, gain @ y, float(left_over)))
    chances = np.exp(min(surprises) - np.array(surprises))
    chances /= chances.sum()
    return _Posterior(
        tuple(replace(one, chance=float(chance)) for one, chance in zip(found, chances, strict=True)), slopes, y
    )
