"""Networks that do not work at all and ruin every squared error: CoNAS's threshold, or one from the data.

A cell without a path from its input to its output guesses. A form fitted by least squares spends its coefficients on
such networks, and knows the working ones worse for it. They lie far below all others, so the scatter of the others says
where they begin: `DEVIATIONS` robust standard deviations below the median, which no such network moves while they are
few. Of normally distributed accuracies one in three million lies so far below.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from deploynas.errors import InputError

Threshold = float | Literal["auto", "none"]  # the lowest value that a fit looks at, or where it comes from

DEVIATIONS = 5.0  # where the paper has a loss per supernet, 1.5 and 1.8 (appendix A.1)
OF_NORMAL = 1.4826  # standard deviation / median absolute deviation


def require_threshold(asked: Threshold) -> None:
    number = isinstance(asked, (int, float)) and not isinstance(asked, bool) and math.isfinite(asked)
    if not number and asked not in ("auto", "none"):
        raise InputError(f"a threshold is a number, `auto` or `none`, got {asked!r}")


def threshold_of(accuracies: np.ndarray, asked: Threshold) -> float:
    """The lowest accuracy of a network that works; minus infinity where none is too low."""
    require_threshold(asked)
    if asked == "none":
        return -math.inf
    if asked == "auto":
        median = float(np.median(accuracies))
        deviation = OF_NORMAL * float(np.median(np.abs(accuracies - median)))
        return median - DEVIATIONS * deviation if deviation > 0 else -math.inf
    return float(asked)


def normal(accuracies: np.ndarray, asked: Threshold) -> np.ndarray:
    """Which networks work."""
    return accuracies >= threshold_of(accuracies, asked)
