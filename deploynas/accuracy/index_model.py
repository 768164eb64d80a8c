"""Indices and their link, fitted: Gauss-Newton steps between re-estimates of what to expect .

    t = constant + sum of exp(linear) u + sum over units of exp(rise) tanh(exp(steepness) u + shift),   u = design . w

Logarithms keep every weight of the link positive. The weights w of an index are expected to be normal, with one
variance for every kind of effect (a kernel everywhere, a kernel in a stage, ...), found from the observations as
`shrinkage` does: each variance is multiplied by the square root of how much of its kind is seen over how much is
expected. So nothing is tuned on held-out data. Plain arrays in, plain arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

ROUNDS = 12  # of variances
TRIAL_ROUNDS, TRIAL_ROWS = 3, 8_000  # of each of several starts
REFINING_ROUNDS = 5
STEPS = 4  # of Gauss-Newton between them, at most
LAST_STEPS = 8
SETTLED = 1e-4  # relative change of the objective by a step
ROUND_SETTLED = 0.2  # change of the objective by a round: a likelihood ratio that nobody would notice
# entries of a design; below, a second thread costs more than it brings: three times the time where nobody else
# computes, twenty-five times where both cores are busy
WORTH_THREADS = 1_000_000
CHUNK_ENTRIES = 4_000_000  # of the Jacobian that is in memory at once
LEAST_VARIANCE, MOST_VARIANCE = 1e-12, 1e4
# standard deviations of what is expected of the link, in logarithms where it is one
LINEAR_SD, RISE_SD, STEEPNESS_SD, SHIFT_SD, CONSTANT_SD = 2.0, 2.0, 1.4, 1.4, 10.0


class Likelihood(Protocol):
    """What is observed at each row of the design, given its t."""

    def loss(self, t: np.ndarray) -> float: ...

    def pull(self, t: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """How much each row pulls its t upwards (minus the slope of the loss), and the loss's curvature."""
        ...

    def of(self, rows: slice) -> Likelihood:
        """Of some of the rows."""
        ...

    def adapted(self, t: np.ndarray, parameters: float) -> Likelihood:
        """With what it has of its own re-estimated, after a fit of so many effective parameters."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """Values with independent errors, of one variance divided by a weight per row."""

    y: np.ndarray
    variance: float
    weight: np.ndarray  # with a mean of 1

    def loss(self, t: np.ndarray) -> float:
        squares = float((self.weight * (self.y - t) ** 2).sum())
        return 0.5 * (squares / self.variance + len(self.y) * float(np.log(self.variance)))

    def pull(self, t: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        weight = self.weight[rows]
        return weight * (self.y[rows] - t) / self.variance, weight * (1 / self.variance)

    def of(self, rows: slice) -> Gaussian:
        return replace(self, y=self.y[rows], weight=self.weight[rows])

    def adapted(self, t: np.ndarray, parameters: float) -> Gaussian:
        left = max(len(self.y) - parameters, 0.1 * len(self.y))
        return replace(self, variance=max(float((self.weight * (self.y - t) ** 2).sum()) / left, 1e-10))


@dataclass(frozen=True)
class Bernoulli:
    """Right or wrong with log odds t + slope * offset, an offset per row for how easy its image is."""

    right: np.ndarray  # 0 or 1
    offset: np.ndarray
    slope: float = 1.0

    def loss(self, t: np.ndarray) -> float:
        odds = t + self.slope * self.offset
        return float((np.logaddexp(0, odds) - self.right * odds).sum())

    def pull(self, t: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        p = _sigmoid(t + self.slope * self.offset[rows])
        return self.right[rows] - p, p * (1 - p)

    def of(self, rows: slice) -> Bernoulli:
        return replace(self, right=self.right[rows], offset=self.offset[rows])

    def adapted(self, t: np.ndarray, parameters: float) -> Bernoulli:
        p = _sigmoid(t + self.slope * self.offset)
        information = float((self.offset**2 * p * (1 - p)).sum())
        step = float((self.offset * (self.right - p)).sum()) / information if information > 0 else 0.0
        return replace(self, slope=max(self.slope + float(np.clip(step, -0.5, 0.5)), 0.0))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


@dataclass(frozen=True)
class Shape:
    """How many indices of how many weights, and how many units the link has; without any it is a straight line."""

    indices: int
    units: int
    weights: int

    @property
    def size(self) -> int:
        return self.indices * self.weights + self.indices + self.units * (2 + self.indices) + 1

    def split(self, theta: np.ndarray) -> Parts:
        r, h, cut = self.indices, self.units, self.indices * self.weights
        w, linear, rise, steepness, shift, constant = np.split(theta, np.cumsum([cut, r, h, h * r, h]))
        return Parts(
            w.reshape(r, -1), np.exp(linear), np.exp(rise), np.exp(steepness).reshape(h, r), shift, float(constant[0])
        )


@dataclass(frozen=True)
class Parts:
    """The parameters by their names, logarithms undone."""

    w: np.ndarray  # (indices, weights)
    linear: np.ndarray  # (indices,)
    rise: np.ndarray  # (units,)
    steepness: np.ndarray  # (units, indices)
    shift: np.ndarray  # (units,)
    constant: float

    def t(self, design: np.ndarray) -> np.ndarray:
        u = design @ self.w.T.astype(design.dtype)
        return self.constant + u @ self.linear + np.tanh(u @ self.steepness.T + self.shift) @ self.rise

    def jacobian(self, design: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """t, how fast it rises with each index, and its derivatives by all parameters."""
        u = design @ self.w.T.astype(design.dtype)
        bent = np.tanh(u @ self.steepness.T + self.shift)
        t = self.constant + u @ self.linear + bent @ self.rise
        inside = (1 - bent * bent) * self.rise  # by the input of each unit
        slopes = self.linear + inside @ self.steepness
        columns = [design * slopes[:, i : i + 1].astype(design.dtype) for i in range(len(self.w))]
        steep = inside[:, :, None] * u[:, None, :] * self.steepness
        columns += [u * self.linear, bent * self.rise, steep.reshape(len(u), -1), inside, np.ones((len(u), 1))]
        return t, slopes, np.concatenate([c.astype(design.dtype, copy=False) for c in columns], axis=1)


@dataclass(frozen=True)
class Prior:
    """Mean and precision of what is expected of the parameters, before any observation."""

    mean: np.ndarray
    precision: np.ndarray  # (parameters, parameters)

    def loss(self, theta: np.ndarray) -> float:
        off = theta - self.mean
        return 0.5 * float(off @ self.precision @ off)


@dataclass(frozen=True)
class Fitted:
    """Parameters at the optimum, with what the fit ended with."""

    shape: Shape
    theta: np.ndarray
    expected: Prior
    variances: np.ndarray  # (indices, kinds)
    likelihood: Likelihood
    curvature: np.ndarray  # of observations and expectation together
    surprise: float  # minus the logarithm of the evidence (Laplace): comparable between fits of the same observations

    @property
    def parts(self) -> Parts:
        return self.shape.split(self.theta)


def fit_additive(design: np.ndarray, likelihood: Likelihood, kinds: np.ndarray) -> Fitted:
    """One index and a straight line: the shrunk additive form. `kinds` are covariances (kinds, weights, weights)."""
    shape = Shape(1, 0, design.shape[1])
    mean = np.zeros(shape.size)
    precision = np.array([1e8, CONSTANT_SD**-2])  # the index is in the units of t
    variances = 1 / (len(kinds) * np.trace(kinds, axis1=1, axis2=2))[None]
    start = _State(shape, mean, variances, likelihood, 1e-3)
    return _fit(design, start, (mean[shape.weights :], precision), kinds, ROUNDS)


def fit_linked(
    design: np.ndarray, additive: Fitted, kinds: np.ndarray, shape: Shape, starts: Sequence[np.ndarray]
) -> Fitted:
    """From an additive fit and one or several ways to share its weights among the indices, each (indices, weights)."""
    rng = np.random.default_rng(0)
    level = additive.parts.constant
    spread = max(float((design @ additive.parts.w[0].astype(design.dtype)).std()), 1e-3)
    places = spread * np.linspace(1.5, -1.5, shape.units)
    steepness = np.full((shape.units, shape.indices), -np.log(spread))
    if shape.indices > 1:
        places, steepness = rng.permutation(places), steepness + rng.normal(size=steepness.shape)
    link = np.concatenate(
        [
            np.full(shape.indices, np.log(0.5)),
            np.full(shape.units, np.log(0.5 * spread / shape.units)),
            steepness.ravel(),
            places / spread,
            [level],
        ]
    )
    r, h = shape.indices, shape.units
    sd = np.repeat([LINEAR_SD, RISE_SD, STEEPNESS_SD, SHIFT_SD, CONSTANT_SD], [r, h, h * r, h, 1])
    variances = np.repeat(additive.variances, r, axis=0)
    states = [_State(shape, np.concatenate([w.ravel(), link]), variances, additive.likelihood, 1e-2) for w in starts]
    if len(states) > 1:
        few = slice(None, TRIAL_ROWS)
        trials = [replace(state, likelihood=state.likelihood.of(few)) for state in states]
        tried = [_fit(design[few], state, (link, sd**-2.0), kinds, TRIAL_ROUNDS, spread) for state in trials]
        best = min(tried, key=lambda fit: fit.surprise)
        states = [_State(shape, best.theta, best.variances, additive.likelihood, 1e-2)]
    return _fit(design, states[0], (link, sd**-2.0), kinds, ROUNDS, spread)


def refined(design: np.ndarray, first: Fitted, likelihood: Likelihood, kinds: np.ndarray) -> Fitted:
    """A fit to some of the observations, brought to the optimum of all of them."""
    link = slice(first.shape.indices * first.shape.weights, None)
    expected = first.expected.mean[link], np.diag(first.expected.precision)[link]
    spread = float((design @ first.parts.w[0].astype(design.dtype)).std())
    state = _State(first.shape, first.theta, first.variances, likelihood, 1e-3)
    return _fit(design, state, expected, kinds, REFINING_ROUNDS, spread)


@dataclass(frozen=True)
class _State:
    shape: Shape
    theta: np.ndarray
    variances: np.ndarray
    likelihood: Likelihood
    damping: float


def _fit(
    design: np.ndarray,
    state: _State,
    link: tuple[np.ndarray, np.ndarray],
    kinds: np.ndarray,
    rounds: int,
    scale: float = 1.0,
) -> Fitted:
    """Rounds of Gauss-Newton steps, each followed by a re-estimate of variances; the last has steps alone."""
    with threadpool_limits(1 if design.size < WORTH_THREADS else None, "blas"):
        return _rounds(design, state, link, kinds, rounds, scale)


def _rounds(
    design: np.ndarray,
    state: _State,
    link: tuple[np.ndarray, np.ndarray],
    kinds: np.ndarray,
    rounds: int,
    scale: float,
) -> Fitted:
    before = np.inf
    for number in range(rounds):
        last = number == rounds - 1
        expected = _expected(state.shape, state.variances, kinds, link)
        state, objective = _descend(design, state, expected, LAST_STEPS if last else STEPS)
        curvature, _ = _normal(design, state, expected)
        if last or abs(before - objective) < ROUND_SETTLED:
            break
        before = objective
        inverse = np.linalg.inv(curvature)
        parameters = state.shape.size - float((expected.precision * inverse).sum())
        t = state.shape.split(state.theta).t(design)
        state = replace(
            state,
            variances=_variances(state, expected, inverse, kinds),
            likelihood=state.likelihood.adapted(t, parameters),
        )
        if state.shape.units:
            state = _rescaled(state, design, scale)
    surprise = objective + 0.5 * (np.linalg.slogdet(curvature)[1] - np.linalg.slogdet(expected.precision)[1])
    return Fitted(state.shape, state.theta, expected, state.variances, state.likelihood, curvature, float(surprise))


def _rescaled(state: _State, design: np.ndarray, scale: float) -> _State:
    """The same fit with indices of one standard deviation, so that what is expected of the link keeps its meaning."""
    q, r, h = state.shape.weights, state.shape.indices, state.shape.units
    theta, variances = state.theta.copy(), state.variances.copy()
    w, linear, _, steepness, _ = np.split(theta, np.cumsum([r * q, r, h, h * r]))  # views
    for i in range(r):
        row = w[i * q : (i + 1) * q]
        # an index that the observations do not speak for vanishes: it is not blown up again
        factor = np.clip(scale / max(float((design @ row.astype(design.dtype)).std()), 1e-6 * scale), 0.25, 4.0)
        row *= factor
        variances[i] *= factor**2
        linear[i] -= np.log(factor)
        steepness[i::r] -= np.log(factor)
    return replace(state, theta=theta, variances=variances)


def _expected(shape: Shape, variances: np.ndarray, kinds: np.ndarray, link: tuple[np.ndarray, np.ndarray]) -> Prior:
    precision, q = np.zeros((shape.size, shape.size)), shape.weights
    for i, of_kinds in enumerate(variances):
        covariance = np.tensordot(of_kinds, kinds, 1)
        covariance += 1e-9 * (1 + np.trace(covariance) / q) * np.eye(q)
        precision[i * q : (i + 1) * q, i * q : (i + 1) * q] = np.linalg.inv(covariance)
    rest = slice(shape.indices * q, None)
    precision[rest, rest] = np.diag(link[1])
    return Prior(np.concatenate([np.zeros(shape.indices * q), link[0]]), precision)


def _descend(design: np.ndarray, state: _State, expected: Prior, steps: int) -> tuple[_State, float]:
    """Levenberg-Marquardt: the damping grows until a step lowers the objective, and shrinks afterwards."""

    def objective(theta: np.ndarray) -> float:
        return state.likelihood.loss(state.shape.split(theta).t(design)) + expected.loss(theta)

    current, damping = objective(state.theta), state.damping
    for _ in range(steps):
        curvature, gradient = _normal(design, state, expected)
        for _ in range(8):
            step = cho_solve(cho_factor(curvature + damping * np.diag(np.diag(curvature))), gradient)
            new = objective(state.theta + step)
            if new < current:
                break
            damping *= 5
        else:
            break
        damping = max(damping / 5, 1e-9)
        settled = current - new < SETTLED * max(1.0, abs(current))
        state, current = replace(state, theta=state.theta + step), new
        if settled:
            break
    return replace(state, damping=min(damping, 1e3)), current


def _normal(design: np.ndarray, state: _State, expected: Prior) -> tuple[np.ndarray, np.ndarray]:
    """Curvature (Gauss-Newton) of the objective, and minus its gradient."""
    parts = state.shape.split(state.theta)
    curvature = expected.precision.copy()
    gradient = -expected.precision @ (state.theta - expected.mean)
    chunk = max(1, CHUNK_ENTRIES // state.shape.size)
    for start in range(0, len(design), chunk):
        rows = slice(start, start + chunk)
        t, _, jacobian = parts.jacobian(design[rows])
        pull, weight = state.likelihood.pull(t, rows)
        gradient += jacobian.T @ pull.astype(design.dtype)
        jacobian *= np.sqrt(weight)[:, None].astype(design.dtype)
        curvature += jacobian.T @ jacobian
    return curvature, gradient


def _variances(state: _State, expected: Prior, inverse: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    q, result = state.shape.weights, state.variances.copy()
    flat = kinds.reshape(len(kinds), -1)
    for i in range(state.shape.indices):
        here = slice(i * q, (i + 1) * q)
        precision = expected.precision[here, here]
        seen = precision @ state.theta[here]
        unexplained = precision - precision @ inverse[here, here] @ precision
        found, expect = flat @ np.outer(seen, seen).ravel(), flat @ unexplained.ravel()
        # where two indices are nearly the same, rounding may leave less than nothing of either: then it says nothing
        told = (found > 0) & (expect > 0)
        ratio = np.where(told, found, 1.0) / np.where(told, expect, 1.0)
        result[i] = np.clip(result[i] * np.sqrt(ratio), LEAST_VARIANCE, MOST_VARIANCE)
    return result
