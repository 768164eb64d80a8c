"""From networks and their accuracies to a sparse estimator: bits, threshold, recovery (CoNAS, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deploynas.accuracy.abnormal import Threshold, normal, require_threshold
from deploynas.accuracy.bits import Bits
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.learned import MIN_NETWORKS, Weights, checked_accuracies, checked_weights
from deploynas.accuracy.sparse_recovery import Measured, Recovered, RecoverySettings, recover
from deploynas.errors import InputError
from deploynas.space import Architecture, Space


@dataclass(frozen=True)
class FourierSettings:
    """What a fit looks at, and how it recovers a polynomial from that."""

    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    threshold: Threshold = "auto"

    def __post_init__(self) -> None:
        require_threshold(self.threshold)


def fit_fourier(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    settings: FourierSettings | None = None,
    *,
    weights: Weights = None,
    seed: int = 0,
) -> FourierEstimator:
    """Learn a sum of a few parities. Networks that do not work are left out, see `abnormal`."""
    settings = settings or FourierSettings()
    y = checked_accuracies(space, architectures, accuracies)
    weigh = checked_weights(weights, len(y))
    works = normal(y, settings.threshold)
    if works.sum() < MIN_NETWORKS:
        raise InputError(
            f"a fit needs at least {MIN_NETWORKS} networks, and {works.sum()} of {len(y)} reach the threshold",
            hint="a lower threshold",
        )
    bits = Bits.of(space.decisions)
    measured = Measured(bits(space.rows(architectures))[works], y[works], weigh[works] / weigh[works].mean())
    found = recover(measured, settings.recovery, bits.columns, seed)
    about = {
        "networks": int(works.sum()),
        "below_threshold": int((~works).sum()),
        "lasso": found.lasso,
        "refitted": found.refitted,
        "terms": len(found.polynomial.terms),
    }
    return replace(as_estimator(space, bits, found), provenance=about)


def as_picked(settings: FourierSettings, estimator: StoredEstimator) -> FourierSettings:
    """Lambda, and whether to refit, as a fit of these settings has picked them: for fits to parts of its networks."""
    about = estimator.provenance
    recovery = replace(settings.recovery, lasso=about["lasso"], refit=about["refitted"], folds=0)
    return replace(settings, recovery=recovery)


def as_estimator(space: Space, bits: Bits, found: Recovered) -> FourierEstimator:
    """The polynomial with its bits written as entries of the encoding."""
    entries = space.decisions.encoded_at[list(bits.entries)]
    terms = [sorted(int(entries[bit]) for bit in term) for term in found.polynomial.terms]
    return FourierEstimator.from_terms(
        space, found.polynomial.constant, terms, found.polynomial.values, residual_se=found.held_out_error
    )
