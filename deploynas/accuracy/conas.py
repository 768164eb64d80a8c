"""CoNAS as a search (algorithm 1): sample, measure, recover, decide, restrict, until the network is decided.

Every round draws networks from what is still open, measures them, recovers a sparse polynomial and keeps what maximises
it. What is measured, and by whom, is not known here: a supernet, a table of results, a training each. Values are such
that more is better: accuracies, or losses with their sign turned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from deploynas.accuracy.abnormal import normal
from deploynas.accuracy.bits import Bits
from deploynas.accuracy.fourier_fit import FourierSettings
from deploynas.accuracy.learned import MIN_NETWORKS
from deploynas.accuracy.parities import Polynomial
from deploynas.accuracy.restriction import Restriction
from deploynas.accuracy.sparse_recovery import Measured, RecoverySettings, recover
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture, Space

MeasureRows = Callable[[np.ndarray], np.ndarray]  # rows of decisions -> a value for each

MEASUREMENTS = 300  # per round
TERMS = 14  # of a round: what is decided at once
# as published for NAS-Bench-201 (tables 3 and 4), for losses in nats with their sign turned
PUBLISHED = FourierSettings(RecoverySettings(degree=2, lasso=5.0, terms=14, refit=False), threshold=-1.8)


@dataclass(frozen=True)
class ConasSettings:
    measurements: int = MEASUREMENTS  # in every round
    rounds: int | None = None  # at most; None: until all is decided
    fourier: FourierSettings = field(default_factory=lambda: FourierSettings(RecoverySettings(terms=TERMS)))
    sampling: Literal["uniform", "bernoulli"] = "uniform"  # of options, or of bits
    probability: float = 0.5  # of a bit being 1
    decide: Literal["exact", "published"] = "exact"  # see `restriction`
    seed: int = 0

    def __post_init__(self) -> None:
        if self.measurements < 2 * MIN_NETWORKS:
            raise InputError(f"a round takes at least {2 * MIN_NETWORKS} measurements, got {self.measurements}")
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"at least 1 round must be run, got {self.rounds}")
        if not 0 < self.probability < 1:
            raise InputError(f"the probability of a bit must be between 0 and 1, got {self.probability}")


@dataclass(frozen=True)
class RecoveryRound:
    """One round: what it measured, the polynomial (None: all that was left was measured), and what stayed open."""

    rows: np.ndarray
    values: np.ndarray
    polynomial: Polynomial | None
    left: Restriction


@dataclass(frozen=True)
class Decided:
    """The network, and how it came about."""

    architecture: Architecture
    rounds: tuple[RecoveryRound, ...]

    @property
    def rows(self) -> np.ndarray:
        """All that was measured."""
        return np.concatenate([own.rows for own in self.rounds])

    @property
    def values(self) -> np.ndarray:
        return np.concatenate([own.values for own in self.rounds])


def conas(
    space: Space, measure: MeasureRows, settings: ConasSettings | None = None, on_progress: OnProgress = silent
) -> Decided:
    """Decide on a network. Where rounds end before all is decided, what is left open is drawn at random."""
    settings = settings or ConasSettings()
    rng = np.random.default_rng(settings.seed)
    bits, left = Bits.of(space.decisions), Restriction.nothing(space.decisions)
    rounds: list[RecoveryRound] = []
    while left.combinations > 1 and (settings.rounds is None or len(rounds) < settings.rounds):
        rounds.append(_round(bits, left, measure, settings, rng))
        left = rounds[-1].left
        share = left.decided / len(left.options)
        on_progress(share, f"round {len(rounds)}: {left.decided} of {len(left.options)} decided")
    (architecture,) = space.architectures(space.decisions.canonical(left.draw(1, rng)))
    return Decided(architecture, tuple(rounds))


def _round(
    bits: Bits, left: Restriction, measure: MeasureRows, settings: ConasSettings, rng: np.random.Generator
) -> RecoveryRound:
    if left.combinations <= settings.measurements:
        rows = left.every()
        values = measure(rows)
        return RecoveryRound(rows, values, None, Restriction.to(bits.decisions, rows[int(np.argmax(values))]))
    if settings.sampling == "bernoulli":
        drawn, rows = left.draw_bits(bits, settings.measurements, settings.probability, rng)
    else:
        rows = left.draw(settings.measurements, rng)
        drawn = bits(rows)
    values = measure(rows)
    best = Restriction.to(bits.decisions, rows[int(np.argmax(values))])
    works = normal(values, settings.fourier.threshold)
    if works.sum() < MIN_NETWORKS or np.ptp(values[works]) == 0:
        return RecoveryRound(rows, values, None, best)  # nothing to learn
    measured = Measured(drawn[works], values[works], np.ones(int(works.sum())))
    # products of two options of one choice are known from each alone, unless bits were drawn on their own
    exclusive = bits.columns if settings.sampling == "uniform" and settings.decide == "exact" else None
    found = recover(measured, settings.fourier.recovery, exclusive).polynomial
    if settings.decide == "published":
        narrowed = left.narrowed_by_bits(bits, found, rng)
    else:
        narrowed = left.narrowed(bits, found)
    return RecoveryRound(rows, values, found, narrowed if narrowed.combinations < left.combinations else best)
