"""What each part of a network gains in 8 bits on a device, and what conversions between parts cost there.

Whole networks are timed, interleaved, with 8 bits in no part, in all, in one, in all but one, up to a part and from a
part on. Their latencies are a sum: what fp32 takes, less a gain for each part in 8 bits, plus a cost for each border at
which floats become integers or integers floats. Borders are told apart by little, so what each of them costs is held
near the common cost of a converted number, as far as the measurements leave it open (a normal prior).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Assignment = tuple[bool, ...]  # of each part, in order: whether it is in 8 bits

FREE = 1.0  # standard deviations of the prior, as shares of what the fp32 network takes: gains, cost of a number
BORDER = 0.02  # and a border's own difference from the common cost
ROUNDS = 10  # of estimating the noise from what is left


@dataclass(frozen=True)
class PrecisionCosts:
    """In milliseconds; borders are named by the part behind them, so the first has none."""

    base_ms: float
    gain_ms: np.ndarray  # of each part, its neighbours being in 8 bits too
    entering_ms: np.ndarray  # of each border: from float to 8 bits
    leaving_ms: np.ndarray
    noise_ms: float  # standard deviation of a measured network around the sum

    def predict(self, in_8_bits: Sequence[bool]) -> float:
        x = np.asarray(in_8_bits, float)
        entered, left = _borders(x[None])
        return float(self.base_ms - x @ self.gain_ms + entered[0] @ self.entering_ms + left[0] @ self.leaving_ms)


def assignments_to_time(parts: int) -> list[Assignment]:
    """Float first; those that tell gains and borders apart, each once."""
    every = range(parts)
    wanted = [
        *([False] * parts, [True] * parts),
        *([i == one for i in every] for one in every),
        *([i != one for i in every] for one in every),
        *([i < first for i in every] for first in every),
        *([i >= first for i in every] for first in every),
    ]
    return list(dict.fromkeys(tuple(one) for one in wanted))


def fit_costs(
    assignments: Sequence[Assignment], latency_ms: Sequence[float], elements: Sequence[int]
) -> PrecisionCosts:
    """`elements`: how many numbers each part reads, which is what a border before it converts."""
    x, ms = np.asarray(assignments, float), np.asarray(latency_ms, float)
    (entered, left), n = _borders(x), x.shape[1]
    share = np.asarray(elements, float)[1:] / max(elements)
    features = np.hstack([np.ones((len(x), 1)), -x, (entered @ share)[:, None], (left @ share)[:, None], entered, left])
    scale = ms[0]
    spread = scale * np.concatenate([[10.0], np.full(n + 2, FREE), np.full(2 * (n - 1), BORDER)])
    noise = 0.01 * scale
    for _ in range(ROUNDS):
        precision = features.T @ features / noise**2 + np.diag(spread**-2)
        covariance = np.linalg.inv(precision)
        found = covariance @ features.T @ ms / noise**2
        # what the sum can follow of the noise is not left in the residuals
        freedom = len(ms) - np.trace(covariance @ features.T @ features) / noise**2
        noise = max(float(np.sqrt(np.sum((ms - features @ found) ** 2) / max(freedom, 1.0))), 1e-4 * scale)
    base, gain, (enter, leave), own = found[0], found[1 : n + 1], found[n + 1 : n + 3], found[n + 3 :]
    return PrecisionCosts(float(base), gain, enter * share + own[: n - 1], leave * share + own[n - 1 :], noise)


def _borders(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between neighbours, for each assignment: whether 8 bits begin there, and whether they end there."""
    return (1 - x[:, :-1]) * x[:, 1:], x[:, :-1] * (1 - x[:, 1:])
