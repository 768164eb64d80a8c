"""Stein variational gradient descent with regularised diversity (Shu et al. 2022, algorithm 5.3).

Particles move together: towards where a density is high, and apart from each other.

    phi_i = mean_j [ k(x_j, x_i) grad log p(x_j) + grad_{x_j} k(x_j, x_i) - delta grad_{x_i} k(x_j, x_i) ]

For a kernel of the difference, as the radial one here, the last gradient is minus the one before: that is plain SVGD
with its repulsion times 1 + delta, and none is left at delta = -1.

The density is that of choices, made continuous (5.8): an option is a corner of its column's simplex, and every column
a mixture of Gaussians around its corners, with a variance of as many as the column has options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deploynas.space import Decisions

Score = Callable[[np.ndarray], np.ndarray]  # (particles, dimensions): the gradient of the log density at each


@dataclass(frozen=True)
class SvgdSettings:
    delta: float = 0.0
    iterations: int = 1000
    rate: float = 0.1
    momentum: float = 0.9


def particles(score: Score, start: np.ndarray, settings: SvgdSettings) -> np.ndarray:
    """Where they come to rest, or are after the iterations."""
    x, velocity = start.copy(), np.zeros_like(start)
    for _ in range(settings.iterations):
        velocity = settings.momentum * velocity + direction(x, score(x), settings.delta)
        x = x + settings.rate * velocity
    return x


def direction(x: np.ndarray, score: np.ndarray, delta: float, bandwidth: float | None = None) -> np.ndarray:
    """phi, for all particles."""
    apart = x[:, None] - x[None]  # [j][i]: x_j - x_i
    squares = (apart**2).sum(2)
    h = _bandwidth(squares) if bandwidth is None else bandwidth
    k = np.exp(-squares / h)
    by_first = -2 / h * k[..., None] * apart  # grad_{x_j} k(x_j, x_i)
    by_second = 2 / h * k[..., None] * apart  # grad_{x_i} k(x_j, x_i)
    return (k.T @ score + (by_first - delta * by_second).sum(0)) / len(x)


def _bandwidth(squares: np.ndarray) -> float:
    """The median heuristic of Liu and Wang (2016)."""
    between = squares[np.triu_indices(len(squares), 1)]
    median = float(np.median(between)) if len(between) else 0.0
    return median / float(np.log(len(squares) + 1)) or 1.0


def relaxed_score(decisions: Decisions, p: np.ndarray) -> Score:
    """Of the density of choices; `p`: the probability of every option, as a vector of decisions."""

    def score(x: np.ndarray) -> np.ndarray:
        found = np.empty_like(x)
        for where in decisions.slices:
            own, variance = x[:, where], where.stop - where.start
            # |x - corner|^2 is -2 x_o and what all corners share
            pull = np.log(np.maximum(p[where], 1e-300)) + own / variance
            pull = np.exp(pull - pull.max(1, keepdims=True))
            found[:, where] = (pull / pull.sum(1, keepdims=True) - own) / variance
        return found

    return score
