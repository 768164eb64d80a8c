"""The part of an estimator's error that no better knowledge of its coefficients would remove.

A prediction errs because coefficients are uncertain, which an estimator may know (`scatter`), and because no choice of
coefficients is right about every network. The second part, the *lack of fit*, shows on networks that had no part in the
fit: what their errors have beyond the scatter and beyond the noise of their own measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.mlp import MLPEstimator
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.space import Architecture


def scatter(estimator: StoredEstimator, architectures: Sequence[Architecture]) -> np.ndarray:
    """The variance of each prediction that comes from uncertain coefficients alone; 0 where it is not known."""
    if isinstance(estimator, IndexedEstimator):
        return np.var(estimator.draws(estimator.space.rows(architectures)), axis=0, ddof=1)
    if isinstance(estimator, BilinearEstimator):
        return np.array([(estimator.predict_se(architecture) or 0.0) ** 2 for architecture in architectures])
    if isinstance(estimator, (QuadraticEstimator, FourierEstimator, MLPEstimator)):
        return np.zeros(len(architectures))
    raise AssertionError(estimator)


def lack_of_fit(errors: np.ndarray, explained: np.ndarray) -> float:
    """A standard deviation, from errors on networks left out and the variances that are explained already."""
    return max(float((errors**2 - explained).mean()), 0.0) ** 0.5


def stating_lack_of_fit(estimator: StoredEstimator, deviation: float) -> StoredEstimator:
    """The same estimator, whose standard errors contain a lack of fit; instead of the one it stated, if any."""
    if isinstance(estimator, IndexedEstimator):
        return replace(estimator, lack_of_fit=deviation)
    if isinstance(estimator, BilinearEstimator):
        if estimator.errors is None:
            return estimator
        # a sum has no place of its own for it; in the base it counts once for every network
        base = float(np.hypot(estimator.errors.base, deviation))
        return replace(estimator, errors=replace(estimator.errors, base=base))
    if isinstance(estimator, (QuadraticEstimator, FourierEstimator, MLPEstimator)):
        return replace(estimator, residual_se=deviation)
    raise AssertionError(estimator)
