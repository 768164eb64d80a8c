"""What samples themselves say about design choices, whatever the estimator is that comes of them.

A comparison of unbiased contributions, with the covariance of their errors, owes nothing to what other places say:
shrinking would lend a choice that is worth nothing in one stage the worth that it has in the others, with an error bar
as small as if it had been measured. So sentences are tested by what is computed here, before any shrinking.
"""

from __future__ import annotations

import numpy as np

from deploynas.accuracy.comparisons import MeasuredComparison, measured
from deploynas.accuracy.contrasts import Contrasts
from deploynas.accuracy.contributions import Contributions
from deploynas.space import Space

SPARE_NETWORKS = 1.5  # networks for every coefficient of a fit, at least, or nothing is said about its errors


def compared(found: Contributions) -> tuple[MeasuredComparison, ...]:
    """From contributions that nothing has shrunk; none where it is not known what they rest on."""
    if found.covariance is None or found.clusters is None:
        return ()
    return measured(found.space.decisions, found.values, found.covariance, max(1, found.clusters - 1))


def compared_networks(space: Space, rows: np.ndarray, y: np.ndarray) -> tuple[MeasuredComparison, ...]:
    """From whole networks, as rows of decisions, and their accuracies, by least squares; none if they are too few."""
    contrasts = Contrasts(space.decisions, "projection")
    x = contrasts.matrix(rows)
    degrees = len(y) - contrasts.size
    if len(y) < SPARE_NETWORKS * contrasts.size or np.linalg.matrix_rank(x) < contrasts.size:
        return ()
    inverse = np.linalg.inv(x.T @ x)
    theta = inverse @ x.T @ y
    residual = y - x @ theta
    combine = contrasts.contributions[1:]
    covariance = combine @ inverse @ combine.T * float(residual @ residual) / degrees
    return measured(space.decisions, combine @ theta, covariance, degrees)
