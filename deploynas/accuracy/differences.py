"""How much networks differ in what is expected of them, with the standard error of the difference itself.

Two similar networks share most of what is uncertain about either, so the error of a difference is not that of two
predictions. Contributions have variances of their own; an indexed estimator has refits, whose differences scatter. What
no form explains about a network (`lack_of_fit`) is not in these errors: nobody knows how much of it neighbours share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator, StandardErrors
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.space import Architecture, Decisions


@dataclass(frozen=True)
class Difference:
    """Of expected accuracies, fractions."""

    accuracy: float
    se: float | None  # None: not known


def difference(estimator: StoredEstimator, after: Architecture, before: Architecture) -> Difference:
    """What is expected of one network minus what is expected of another."""
    rows = estimator.space.rows([after, before])
    return differences(estimator, rows, np.array([[1.0, -1.0]]))[0]


def differences(estimator: StoredEstimator, rows: np.ndarray, weights: np.ndarray) -> list[Difference]:
    """Weighted sums over networks, as rows of decisions; the weights (sums, rows) of each sum add up to zero."""
    rows, which = np.unique(estimator.space.decisions.canonical(rows), axis=0, return_inverse=True)
    gathered = np.zeros((len(weights), len(rows)))
    np.add.at(gathered.T, which.ravel(), weights.T)
    predicted = predictions(estimator, rows)
    expected = np.array([estimator.expected(float(score)) for score in predicted])
    gains, raw = gathered @ expected, gathered @ predicted
    errors = _errors(estimator, rows, gathered)
    if errors is None:
        return [Difference(float(gain), None) for gain in gains]
    # where a curve leads from predictions to what is expected, errors are compressed as differences are
    moved = np.abs(raw) > 1e-9
    slope = np.where(moved, np.abs(gains) / np.where(moved, np.abs(raw), 1.0), 1.0)
    return [Difference(float(gain), float(error)) for gain, error in zip(gains, slope * errors, strict=True)]


def predictions(estimator: StoredEstimator, rows: np.ndarray) -> np.ndarray:
    if isinstance(estimator, IndexedEstimator):
        return estimator.predict_rows(rows)
    return np.array([estimator.predict(network) for network in estimator.space.architectures(rows)])


def _errors(estimator: StoredEstimator, rows: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """Of weighted sums of predictions; None for a kind that knows no errors but those of whole networks."""
    decisions = estimator.space.decisions
    if isinstance(estimator, BilinearEstimator) and estimator.errors is not None:
        combined = weights @ decisions.active(rows)
        return np.sqrt(combined**2 @ variances_of(decisions, estimator.errors))
    if isinstance(estimator, IndexedEstimator) and len(estimator.refits) > 1:
        return (estimator.draws(rows) @ weights.T).std(axis=0, ddof=1)
    return None


def variances_of(decisions: Decisions, errors: StandardErrors) -> np.ndarray:
    """Of the means whose deviations from each other contributions are, where no more than errors is known.

    Contributions of a column add up to zero, so they vary together; the means behind them are taken to vary
    independently, and a comparison within the column is one of those means. A deviation from the mean of n has
    (n - 1) / n of the variance of one.
    """
    variances = decisions.flat(errors.depth, errors.block) ** 2
    for where in decisions.slices:
        n = where.stop - where.start
        variances[where] *= n / (n - 1) if n > 1 else 1.0
    return variances
