"""Measures what a search has gained: the found network against the heaviest, the best uniform one and random ones.

Latencies are measured together, in one interleaved run, and brought to the scale of the shipped file. Accuracies are
of the same images, so a difference is taken on each image: its variance is that of a mean over images, plus, where
several networks are averaged, that of a mean over the draw of networks. Other seeds of training are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.latency.table import LatencyTable, Measurement
from deploynas.pipeline.rivals import random_networks, uniform_networks
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.report.gain import ComparedNetwork, GainRecord, Judgement, Part, Role, RoleAccuracy
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.input_size import for_any_size
from deploynas.training.evaluation import right_images

RANDOM = 8  # random networks that are compared
SPARE = 4  # more of them, since some measure otherwise than predicted
UNIFORM = 3  # uniform networks that are measured, the best one of which is compared
SAME = 0.05  # measured latencies that differ by less are the same
SLACK = 0.01  # two measurements of one network differ by about this much
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rivals:
    """What a found network is compared with, before it is measured."""

    heaviest: tuple[Architecture, ...]  # none if it was found itself
    uniform: tuple[Architecture, ...] = ()  # best first
    random: tuple[Architecture, ...] = ()

    @classmethod
    def of(cls, found: Architecture, estimator: StoredEstimator | None, table: LatencyTable | None) -> Rivals:
        space = found.space
        heaviest = tuple({space.heaviest()} - {found})
        if table is None:
            return cls(heaviest)

        def worth(network: Architecture) -> float:
            if estimator is None:
                return table.predict(network)
            return estimator.predict(network) if estimator.scale == "ordinal" else estimator.expect(network).accuracy

        limit_ms = (1 + SLACK) * table.predict(found)
        uniform = [network for network in uniform_networks(space) if table.predict(network) <= limit_ms]
        drawn = random_networks(table, found, RANDOM + SPARE, np.random.default_rng(0))
        return cls(heaviest, tuple(sorted(uniform, key=worth, reverse=True)[:UNIFORM]), tuple(drawn))

    @property
    def networks(self) -> tuple[Architecture, ...]:
        return *self.heaviest, *self.uniform, *self.random


@dataclass(frozen=True)
class MeasuredTogether:
    """Networks that were timed in one run; each is judged when it is first asked for.

    `scale` takes latencies of that run to those of the shipped file, which was timed in another: without it one network
    would have two latencies on one page. Ratios stay what they were.
    """

    timed: Mapping[Architecture, Measurement]
    supernet: TrainedSupernet
    scale: float = 1.0
    _right: dict[Architecture, np.ndarray] = field(default_factory=dict)

    def latency_ms(self, network: Architecture) -> float:
        return self.scale * self.timed[network].latency_ms

    def right(self, network: Architecture) -> np.ndarray:
        """Whether it is right about each validation image, one-shot."""
        if network not in self._right:
            self._right[network] = self.supernet.right_alone(network)
        return self._right[network]

    def accuracy(self, network: Architecture) -> float:
        return float(self.right(network).mean())


@dataclass(frozen=True)
class Compared:
    """The found network and those that stay in the comparison after all were timed."""

    by_role: Mapping[Role, tuple[Architecture, ...]]

    @classmethod
    def of(cls, found: Architecture, rivals: Rivals, measured: MeasuredTogether) -> Compared:
        found_ms = measured.latency_ms(found)
        uniform = [n for n in rivals.uniform if measured.latency_ms(n) <= (1 + SLACK) * found_ms]
        roles: dict[Role, tuple[Architecture, ...]] = {
            "found": (found,),
            "heaviest": rivals.heaviest,
            "uniform": tuple(sorted(uniform, key=measured.accuracy, reverse=True)[:1]),
            "random": _of_the_same_latency(rivals.random, found_ms, measured.latency_ms),
        }
        return cls({role: networks for role, networks in roles.items() if networks})

    def first(self, random: int) -> Compared:
        """With fewer random networks."""
        return Compared({role: n[:random] if role == "random" else n for role, n in self.by_role.items()})


def _of_the_same_latency(
    networks: Sequence[Architecture], wanted_ms: float, latency_ms: Callable[[Architecture], float]
) -> tuple[Architecture, ...]:
    """Those that measured the same, in the order in which they were drawn; the nearest too if those are few."""

    def off(network: Architecture) -> float:
        return max(SAME, abs(latency_ms(network) / wanted_ms - 1))

    return tuple(sorted(networks, key=off)[:RANDOM])  # a stable sort


def gain_record(compared: Compared, measured: MeasuredTogether, table: LatencyTable | None) -> GainRecord:
    networks = [
        ComparedNetwork(
            role=role,
            architecture=str(network),
            latency_ms=measured.latency_ms(network),
            relative_error=measured.timed[network].relative_error,
            predicted_ms=table.predict(network) if table else None,
        )
        for role, of_role in compared.by_role.items()
        for network in of_role
    ]
    right = {role: np.stack([measured.right(n) for n in of_role]) for role, of_role in compared.by_role.items()}
    return GainRecord(networks=networks, one_shot=one_shot_judgement(right))


def one_shot_judgement(right: Mapping[Role, np.ndarray]) -> Judgement:
    images = right["found"].shape[1]
    return Judgement(weights="one-shot", part="validation", images=images, roles=judged(right))


def fine_tuned_judgement(
    compared: Compared, supernet: TrainedSupernet, fine_tune: Callable[[Architecture], Path]
) -> Judgement:
    """All of them fine-tuned in the same way, on test images if there are some."""
    data = supernet.data
    part: Part = "test" if data.test is not None else "validation"
    subset = data.test if data.test is not None else data.validation

    def right(network: Architecture) -> np.ndarray:
        model = for_any_size(load_checkpoint(fine_tune(network)).model, network)
        return right_images(model, supernet.batches, subset)

    found = {role: np.stack([right(n) for n in of_role]) for role, of_role in compared.by_role.items()}
    return Judgement(weights="fine-tuned", part=part, images=len(subset), roles=judged(found))


def judged(right: Mapping[Role, np.ndarray]) -> list[RoleAccuracy]:
    """From (networks, images) of each role: whether each network is right about each image."""
    (found,) = right["found"]
    roles = []
    for role, of_role in right.items():
        means = of_role.mean(axis=1)
        several = len(means) > 1
        said = RoleAccuracy(
            role=role,
            accuracies=means.tolist(),
            mean=float(means.mean()),
            se=float(means.std(ddof=1)) / len(means) ** 0.5 if several else None,
        )
        if role != "found":
            difference, half = _difference(found, of_role)
            interval = (difference - half, difference + half)
            said = said.model_copy(update={"difference": difference, "interval": interval})
        roles.append(said)
    return roles


def _difference(found: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """How far the found network is above the mean of the others, and the half-width of the interval."""
    from scipy.stats import t

    each = found - others.mean(axis=0)
    variances = [(float(each.var(ddof=1)) / len(each), len(each) - 1)]
    if len(others) > 1:
        variances.append((float(others.mean(axis=1).var(ddof=1)) / len(others), len(others) - 1))
    variance = sum(v for v, _ in variances)
    if variance == 0:
        return float(each.mean()), 0.0
    freedom = variance**2 / sum(v**2 / degrees for v, degrees in variances)  # Satterthwaite
    return float(each.mean()), float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * variance**0.5
