"""From raw samples to one number and its uncertainty.

Samples of one visit share whatever the machine was doing then, so visits, not samples, are resampled for the
error: a cluster bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BOOTSTRAPS = 200


def summarise(samples_ms: Sequence[float] | np.ndarray, statistic: str) -> float:
    """`mean`, `median`, `min` or a percentile such as `p20`."""
    samples = np.asarray(samples_ms, float)
    if statistic == "mean":
        return float(samples.mean())
    if statistic == "min":
        return float(samples.min())
    return float(np.quantile(samples, _quantile(statistic)))


def relative_error(visits: Sequence[Sequence[float] | np.ndarray], statistic: str) -> float:
    """Half-width of the 95 % interval of the statistic, over the statistic itself."""
    if len(visits) < 2:
        return float("inf")
    samples = np.concatenate([np.asarray(visit, float) for visit in visits])
    visit_of = np.repeat(np.arange(len(visits)), [len(visit) for visit in visits])
    order = np.argsort(samples)
    samples, visit_of = samples[order], visit_of[order]
    weights = draws(len(visits))[:, visit_of]  # how often each sample is drawn
    if statistic == "mean":
        values = weights @ samples / weights.sum(axis=1)
    else:
        share = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        quantile = 0.0 if statistic == "min" else _quantile(statistic)
        values = samples[np.argmax((share >= quantile) & (weights > 0), axis=1)]
    return half_width(values, len(visits)) / summarise(samples, statistic)


def draws(visits: int) -> np.ndarray:
    """How often each visit is drawn: one row a bootstrap."""
    return np.random.default_rng(0).multinomial(visits, np.full(visits, 1 / visits), size=BOOTSTRAPS)


def half_width(values: np.ndarray, visits: int) -> float:
    """Of the 95 % interval of what was computed once a bootstrap.

    Few visits make a bootstrap optimistic: their own degrees of freedom, and Student's quantile.
    """
    from scipy.special import stdtrit

    return float(stdtrit(visits - 1, 0.975) * np.sqrt(visits / (visits - 1)) * np.std(values))


def _quantile(statistic: str) -> float:
    return 0.5 if statistic == "median" else int(statistic[1:]) / 100
