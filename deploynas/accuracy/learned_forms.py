"""The learned forms by the names that `--method` has for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.fourier_fit import FourierSettings, fit_fourier
from deploynas.accuracy.learned import fit_bilinear, fit_quadratic
from deploynas.accuracy.mlp import fit_mlp
from deploynas.errors import InputError
from deploynas.space import Architecture, Space


def fit_learned(
    method: str,
    space: Space,
    architectures: Sequence[Architecture],
    y: np.ndarray,
    weights: np.ndarray | None = None,
    fourier: FourierSettings | None = None,
) -> StoredEstimator:
    """From whole networks and their accuracies; `fourier` is for the method of this name."""
    if method == "bilinear":
        return fit_bilinear(space, architectures, y, weights=weights)
    if method == "coupled":
        return fit_bilinear(space, architectures, y, couple_stages=True, weights=weights)
    if method == "quadratic":
        return fit_quadratic(space, architectures, y, weights=weights)
    if method == "fourier":
        return fit_fourier(space, architectures, y, fourier, weights=weights)
    if method == "mlp":
        if weights is not None:
            raise InputError(
                "an `mlp` weighs all networks alike, and these have weights or standard errors",
                hint="`--method indexed`, or leave these columns out of the file",
            )
        return fit_mlp(space, architectures, y)
    raise InputError(f"`{method}` is not learned from networks")
