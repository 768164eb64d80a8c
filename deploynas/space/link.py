"""An increasing link: from the indices of a network to its accuracy, monotone to the last bit.

    inner    = constant + linear . u + sum over units of rise * tanh(steepness . u + shift)
    accuracy = inner, or where images differ in difficulty the weighted mean over offsets of sigmoid(inner + offset)

No weight is negative, so nothing here falls when an index rises. That holds for the computed numbers as well, which
is what makes a search that compares indices exact: sums are made term after term, rounding keeps order, and the
hyperbolic tangent is put together from operations that keep it (a library's need not be monotone in the last bit).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deploynas.errors import InputError

SATURATED = 20.0  # tanh is 1 in floating point from here on
SQUARINGS = 7
TERMS = 8  # of the exponential series at 2 * SATURATED / 2**SQUARINGS and below


def _nothing() -> np.ndarray:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Link:
    """Accuracy as an increasing function of the indices; see the module for the formula."""

    constant: float
    linear: np.ndarray  # (indices,), not negative
    rise: np.ndarray = field(default_factory=_nothing)  # (units,), not negative
    steepness: np.ndarray | None = None  # (units, indices), not negative; None: no units
    shift: np.ndarray = field(default_factory=_nothing)  # (units,)
    offsets: np.ndarray = field(default_factory=_nothing)  # of images, on the scale of log odds; none: inner itself
    weights: np.ndarray = field(default_factory=_nothing)  # (offsets,), not negative, sum 1

    def __post_init__(self) -> None:
        if self.steepness is None:
            object.__setattr__(self, "steepness", np.empty((0, len(self.linear))))
        shapes = [self.linear.ndim == 1 and len(self.linear) > 0, self.shift.shape == self.rise.shape == (self.units,)]
        shapes += [self.slopes_in.shape == (self.units, self.indices), self.offsets.shape == self.weights.shape]
        if not all(shapes):
            raise InputError("the parts of the link do not fit each other")
        numbers = (self.constant, self.linear, self.rise, self.slopes_in, self.shift, self.offsets, self.weights)
        if not all(np.isfinite(part).all() for part in numbers):
            raise InputError("every number of the link must be finite")
        if any((part < 0).any() for part in (self.linear, self.rise, self.slopes_in, self.weights)):
            raise InputError("a link whose weights are negative does not rise with its indices")
        if len(self.weights) and abs(float(self.weights.sum()) - 1) > 1e-6:
            raise InputError(f"the weights of the offsets must sum to 1, got {self.weights.sum():g}")

    @property
    def indices(self) -> int:
        return len(self.linear)

    @property
    def units(self) -> int:
        return len(self.rise)

    @property
    def slopes_in(self) -> np.ndarray:
        assert self.steepness is not None
        return self.steepness

    def __call__(self, u: np.ndarray) -> np.ndarray:
        """Accuracies of networks with indices u (networks, indices)."""
        inner = self.inner(u)
        if not len(self.offsets):
            return inner
        total = np.zeros(len(u))
        for offset, weight in zip(self.offsets, self.weights, strict=True):
            total += weight * (0.5 + 0.5 * monotone_tanh(0.5 * (inner + offset)))
        return total

    def inner(self, u: np.ndarray) -> np.ndarray:
        total = np.full(len(u), self.constant)
        for i, weight in enumerate(self.linear):
            total += weight * u[:, i]
        for h, rise in enumerate(self.rise):
            total += rise * monotone_tanh(self._unit_input(u, h))
        return total

    def slopes(self, u: np.ndarray) -> np.ndarray:
        """(networks, indices): how fast the accuracy rises with each index."""
        slopes = np.tile(self.linear, (len(u), 1))
        for h, rise in enumerate(self.rise):
            flatness = monotone_tanh(self._unit_input(u, h)) ** 2
            slopes += (rise * (1 - flatness))[:, None] * self.slopes_in[h]
        return slopes * self._outer_slope(u)[:, None]

    def gradient(self, u: np.ndarray) -> np.ndarray:
        """(networks, parameters): how fast the accuracy rises with the link's own parameters.

        In the order constant, linear, rise, steepness, shift; those that are not negative by their logarithms.
        """
        units = [monotone_tanh(self._unit_input(u, h)) for h in range(self.units)]
        inside = [rise * (1 - unit * unit) for rise, unit in zip(self.rise, units, strict=True)]
        columns = [np.ones(len(u)), *(u * self.linear).T]
        columns += [rise * unit for rise, unit in zip(self.rise, units, strict=True)]
        columns += [inside[h] * column for h in range(self.units) for column in (u * self.slopes_in[h]).T]
        return np.stack([*columns, *inside], axis=1) * self._outer_slope(u)[:, None]

    @property
    def parameters(self) -> int:
        """How many of its own the link has."""
        return 1 + self.indices + self.units * (2 + self.indices)

    def _outer_slope(self, u: np.ndarray) -> np.ndarray:
        """How fast the accuracy rises with what is inside."""
        if not len(self.offsets):
            return np.ones(len(u))
        half = [monotone_tanh(0.5 * (self.inner(u) + offset)) for offset in self.offsets]
        return np.sum([w * 0.25 * (1 - t * t) for w, t in zip(self.weights, half, strict=True)], axis=0)

    def _unit_input(self, u: np.ndarray, h: int) -> np.ndarray:
        total = np.full(len(u), self.shift[h])
        for i, weight in enumerate(self.slopes_in[h]):
            total += weight * u[:, i]
        return total


def monotone_tanh(x: np.ndarray) -> np.ndarray:
    """tanh to about 1e-14, and x <= y implies monotone_tanh(x) <= monotone_tanh(y) for the computed numbers.

    tanh|x| = 1 - 2 / (exp(2|x|) + 1), the exponential by its series at a small argument and squared again and again:
    sums and products of numbers that are not negative, whose rounding keeps order.
    """
    small = np.minimum(np.abs(x), SATURATED)
    small *= 2.0 / 2**SQUARINGS  # a power of two: exact
    power = np.full_like(small, 1.0)
    for n in range(TERMS, 0, -1):  # Horner: 1 + z/1 (1 + z/2 (1 + ...))
        power *= small
        power /= n
        power += 1.0
    for _ in range(SQUARINGS):
        power *= power
    power += 1.0
    np.divide(2.0, power, out=power)
    np.subtract(1.0, power, out=power)
    return np.copysign(power, x)
