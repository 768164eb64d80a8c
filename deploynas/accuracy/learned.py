"""Estimators learned from networks and their accuracies, wherever those came from (3.2.2 and appendix E).

Every fit is least squares on centred features in the directions of the k largest singular values, k picked on
a held-out split. A direction is a combination of networks, so only products of networks with networks are ever
formed: for 0/1 features with g ones in common, all pairs contribute (g^2 - g) / 2 to such a product. The
coefficients of all pairs then are X' diag(a) X. No matrix has a side of N^2, or even one row per pair. Weights multiply
the squared errors: features and accuracies are centred by weighted means, and times the root of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator, StandardErrors
from deploynas.accuracy.compared import compared_networks
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture, Decisions, Space

Weights = Sequence[float] | np.ndarray | None

MIN_NETWORKS = 10
HELD_OUT = 0.2
NEGLIGIBLE = 1e-9  # of the largest squared singular value


@overload
def fit_bilinear(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    couple_stages: Literal[False] = ...,
    weights: Weights = ...,
    seed: int = ...,
) -> BilinearEstimator: ...
@overload
def fit_bilinear(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    couple_stages: Literal[True],
    weights: Weights = ...,
    seed: int = ...,
) -> QuadraticEstimator: ...
def fit_bilinear(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    couple_stages: bool = False,
    weights: Weights = None,
    seed: int = 0,
) -> BilinearEstimator | QuadraticEstimator:
    """Learn contributions from architectures and their accuracies.

    By default the form of eq. 3, whose terms stay within a stage: that is what the exact frontier takes.
    `couple_stages` learns the paper's eq. 8, where every block's worth depends on the depth of every stage.
    """
    y = checked_accuracies(space, architectures, accuracies)
    if not couple_stages:
        return _fit_separable(space, architectures, y, weights, seed)
    x = _encoded(space, architectures)
    alphas = space.decisions.alphas
    alpha, beta = x[:, :alphas] @ x[:, :alphas].T, x[:, alphas:] @ x[:, alphas:].T
    fit = _fit_gram(alpha + beta + alpha * beta, y, checked_weights(weights, len(y)), seed)
    pairs = np.zeros((x.shape[1], x.shape[1]))
    pairs[:alphas, alphas:] = x[:, :alphas].T @ (fit.dual[:, None] * x[:, alphas:])
    return _quadratic(space, x, pairs, fit)


def fit_quadratic(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    weights: Weights = None,
    seed: int = 0,
) -> QuadraticEstimator:
    """Learn all pairs of decisions (eq. 9)."""
    y = checked_accuracies(space, architectures, accuracies)
    x = _encoded(space, architectures)
    common = x @ x.T
    fit = _fit_gram(common + (common**2 - common) / 2, y, checked_weights(weights, len(y)), seed)
    pairs = np.triu(x.T @ (fit.dual[:, None] * x), 1)
    return _quadratic(space, x, pairs, fit)


def _fit_separable(
    space: Space, architectures: Sequence[Architecture], y: np.ndarray, weights: Weights, seed: int
) -> BilinearEstimator:
    decisions = space.decisions
    x = decisions.active(space.rows(architectures))
    weigh = checked_weights(weights, len(y))
    held_out, fitted = _split(len(y), seed)
    part = _Centred.of(x[fitted], y[fitted], weigh[fitted])
    rank = _best_rank(
        _decompose(part.features),
        part,
        (x[held_out] - part.mean_features) @ part.features.T,
        (y[held_out], weigh[held_out]),
    )
    whole = _Centred.of(x, y, weigh)
    u, squares = _decompose(whole.features)
    rank = min(rank, len(squares))
    directions = whole.features.T @ (u[:, :rank] / squares[:rank])  # of the coefficients, one per column
    coefficients = directions @ (u[:, :rank].T @ whole.target)
    residual = whole.target - whole.features @ coefficients
    variance = float(residual @ residual) / max(1, len(y) - rank - 1)
    centring = _averaging_to_zero(decisions)
    values = centring @ np.concatenate([[whole.mean - whole.mean_features @ coefficients], coefficients])
    # the base is the mean accuracy moved along the contributions; its error follows theirs and the mean's own
    spread = centring @ np.vstack([-whole.mean_features @ directions, directions])
    errors = np.sqrt(variance * (spread**2).sum(1))
    errors[0] = (errors[0] ** 2 + variance / len(y)) ** 0.5
    stated = StandardErrors.checked(space, float(errors[0]), *decisions.ragged(errors[1:]))
    estimator = BilinearEstimator.from_arrays(space, float(values[0]), *decisions.ragged(values[1:]), stated)
    # directions that are left out bias contributions towards each other, as shrinking does
    comparisons = compared_networks(space, space.rows(architectures), y) if weights is None else ()
    return replace(estimator, comparisons=comparisons, provenance={"networks": len(y), "shrunk": True})


@dataclass(frozen=True)
class _Centred:
    """Around weighted means, times the root of the weights: least squares on these is weighted least squares."""

    mean: float
    mean_features: np.ndarray
    features: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> _Centred:
        root, mean = np.sqrt(weights), float(np.average(y, weights=weights))
        mean_features = np.average(x, axis=0, weights=weights)
        return cls(mean, mean_features, root[:, None] * (x - mean_features), root * (y - mean))


def _averaging_to_zero(decisions: Decisions) -> np.ndarray:
    """The map of (base, one weight per option) to the same form with weights that average to zero.

    What all configurations of a block share is the worth of the depths that have it, and what all depths share
    is the base.
    """
    form = np.eye(1 + len(decisions))
    rows = [slice(1 + where.start, 1 + where.stop) for where in decisions.slices]
    for (g, position), home in zip(decisions.places, decisions.home, strict=True):
        own = rows[decisions.column(g, position)]
        shared = form[own].mean(0)
        form[own] -= shared
        form[rows[g].start + home : rows[g].stop] += shared
    for g in range(len(decisions.groups)):
        shared = form[rows[g]].mean(0)
        form[rows[g]] -= shared
        form[0] += shared
    return form


@dataclass(frozen=True)
class _Fit:
    dual: np.ndarray  # the coefficients are this combination of the networks' features
    base: float
    held_out_error: float


def _fit_gram(gram: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> _Fit:
    """From the products of all networks' features with each other."""
    held_out, fitted = _split(len(y), seed)
    part = _CentredGram.of(gram[np.ix_(fitted, fitted)], y[fitted], weights[fitted])
    across = part.across(gram[np.ix_(held_out, fitted)])
    parts, outside = _decompose_gram(part.gram), (y[held_out], weights[held_out])
    rank = _best_rank(parts, part, across, outside)
    error = float(np.sqrt(_squared_errors(_predictions(parts, part, across), *outside)[rank]))
    whole = _CentredGram.of(gram, y, weights)
    u, squares = _decompose_gram(whole.gram)
    rank = min(rank, len(squares))
    dual = whole.root * (u[:, :rank] @ ((u[:, :rank].T @ whole.target) / squares[:rank]))
    return _Fit(dual, float(whole.mean - whole.mean_products @ dual), error)


@dataclass(frozen=True)
class _CentredGram:
    """The same as `_Centred`, where only products of features are known."""

    mean: float
    mean_products: np.ndarray  # of every network with the mean of all
    weights: np.ndarray
    gram: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, products: np.ndarray, y: np.ndarray, weights: np.ndarray) -> _CentredGram:
        root, mean = np.sqrt(weights), float(np.average(y, weights=weights))
        own = np.average(products, axis=0, weights=weights)
        gram = products - own - own[:, None] + np.average(own, weights=weights)
        return cls(mean, own, weights, root * gram * root[:, None], root * (y - mean))

    @property
    def root(self) -> np.ndarray:
        return np.sqrt(self.weights)

    def across(self, products: np.ndarray) -> np.ndarray:
        """Products of other networks with these, centred likewise."""
        others = np.average(products, axis=1, weights=self.weights)[:, None]
        level = np.average(self.mean_products, weights=self.weights)
        return (products - others - self.mean_products + level) * self.root


def _decompose(centred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left singular vectors and squared singular values, largest first."""
    from scipy.linalg import svd

    u, s, _ = svd(centred, full_matrices=False, lapack_driver="gesvd")  # gesdd may fail to converge
    known = s**2 > NEGLIGIBLE * max(s[0] ** 2, 1e-300)
    return u[:, known], s[known] ** 2


def _decompose_gram(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.linalg import eigh

    squares, u = eigh(gram, driver="evd", check_finite=False)
    squares, u = squares[::-1], u[:, ::-1]
    known = squares > NEGLIGIBLE * max(squares[0], 1e-300)
    return u[:, known], squares[known]


def _predictions(
    parts: tuple[np.ndarray, np.ndarray], fitted: _Centred | _CentredGram, across: np.ndarray
) -> np.ndarray:
    """(ranks from 0, networks): what fits of every rank predict for networks outside."""
    u, squares = parts
    steps = (across @ u) * ((u.T @ fitted.target) / squares)
    return fitted.mean + np.concatenate([np.zeros((len(across), 1)), np.cumsum(steps, axis=1)], axis=1).T


def _squared_errors(predictions: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Of every rank, their weighted mean."""
    return np.average((predictions - y) ** 2, axis=1, weights=weights)


def _best_rank(
    parts: tuple[np.ndarray, np.ndarray],
    fitted: _Centred | _CentredGram,
    across: np.ndarray,
    outside: tuple[np.ndarray, np.ndarray],
) -> int:
    """`outside` are the accuracies of networks that had no part in the fit, and their weights."""
    return int(np.argmin(_squared_errors(_predictions(parts, fitted, across), *outside)))


def _quadratic(space: Space, x: np.ndarray, pairs: np.ndarray, fit: _Fit) -> QuadraticEstimator:
    linear = x.T @ fit.dual
    return QuadraticEstimator.from_arrays(space, fit.base, linear, pairs, residual_se=fit.held_out_error)


def _encoded(space: Space, architectures: Sequence[Architecture]) -> np.ndarray:
    return np.take(space.decisions.one_hot(space.rows(architectures)), space.decisions.encoding, axis=1)


def _split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(n)
    cut = max(1, round(HELD_OUT * n))
    return order[:cut], order[cut:]


def checked_accuracies(
    space: Space, architectures: Sequence[Architecture], accuracies: Sequence[float] | np.ndarray
) -> np.ndarray:
    """As an array, one for each architecture of the space, and enough of them."""
    y = np.asarray(accuracies, dtype=float)
    if y.shape != (len(architectures),):
        raise InputError(f"{len(architectures)} architectures need as many accuracies, got shape {y.shape}")
    if len(y) < MIN_NETWORKS:
        raise InputError(f"a fit needs at least {MIN_NETWORKS} networks, got {len(y)}")
    if not np.isfinite(y).all():
        raise InputError("accuracies must be finite")
    for architecture in architectures:
        space.require_member(architecture)
    return y


def checked_weights(weights: Weights, networks: int) -> np.ndarray:
    """One for each network, with a mean of 1; all alike if there are none."""
    if weights is None:
        return np.ones(networks)
    found = np.asarray(weights, dtype=float)
    if found.shape != (networks,) or not (np.isfinite(found).all() and (found > 0).all()):
        raise InputError(f"{networks} networks need as many weights, finite and above 0")
    return found / found.mean()
