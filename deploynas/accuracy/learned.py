"""Estimators learned from networks and their accuracies, wherever those came from (3.2.2 and appendix E).

Every fit is least squares on centred features in the directions of the k largest singular values, k picked on
a held-out split. A direction is a combination of networks, so only products of networks with networks are ever
formed: for 0/1 features with g ones in common, all pairs contribute (g^2 - g) / 2 to such a product. The
coefficients of all pairs then are X' diag(a) X. No matrix has a side of N^2, or even one row per pair.
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
    seed: int = ...,
) -> BilinearEstimator: ...
@overload
def fit_bilinear(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    couple_stages: Literal[True],
    seed: int = ...,
) -> QuadraticEstimator: ...
def fit_bilinear(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    couple_stages: bool = False,
    seed: int = 0,
) -> BilinearEstimator | QuadraticEstimator:
    """Learn contributions from architectures and their accuracies.

    By default the form of eq. 3, whose terms stay within a stage: that is what the exact frontier takes.
    `couple_stages` learns the paper's eq. 8, where every block's worth depends on the depth of every stage.
    """
    y = checked_accuracies(space, architectures, accuracies)
    if not couple_stages:
        return _fit_separable(space, architectures, y, seed)
    x = _encoded(space, architectures)
    alphas = space.decisions.alphas
    alpha, beta = x[:, :alphas] @ x[:, :alphas].T, x[:, alphas:] @ x[:, alphas:].T
    fit = _fit_gram(alpha + beta + alpha * beta, y, seed)
    pairs = np.zeros((x.shape[1], x.shape[1]))
    pairs[:alphas, alphas:] = x[:, :alphas].T @ (fit.dual[:, None] * x[:, alphas:])
    return _quadratic(space, x, pairs, fit)


def fit_quadratic(
    space: Space,
    architectures: Sequence[Architecture],
    accuracies: Sequence[float] | np.ndarray,
    *,
    seed: int = 0,
) -> QuadraticEstimator:
    """Learn all pairs of decisions (eq. 9)."""
    y = checked_accuracies(space, architectures, accuracies)
    x = _encoded(space, architectures)
    common = x @ x.T
    fit = _fit_gram(common + (common**2 - common) / 2, y, seed)
    pairs = np.triu(x.T @ (fit.dual[:, None] * x), 1)
    return _quadratic(space, x, pairs, fit)


def _fit_separable(space: Space, architectures: Sequence[Architecture], y: np.ndarray, seed: int) -> BilinearEstimator:
    decisions = space.decisions
    x = decisions.active(space.rows(architectures))
    held_out, fitted = _split(len(y), seed)
    rank = _best_rank(
        _decompose(x[fitted] - x[fitted].mean(0)),
        y[fitted],
        (x[held_out] - x[fitted].mean(0)) @ (x[fitted] - x[fitted].mean(0)).T,
        y[held_out],
    )
    centred = x - x.mean(0)
    u, squares = _decompose(centred)
    rank = min(rank, len(squares))
    directions = centred.T @ (u[:, :rank] / squares[:rank])  # of the coefficients, one per column
    weights = directions @ (u[:, :rank].T @ (y - y.mean()))
    residual = y - y.mean() - centred @ weights
    variance = float(residual @ residual) / max(1, len(y) - rank - 1)
    centring = _averaging_to_zero(decisions)
    values = centring @ np.concatenate([[y.mean() - x.mean(0) @ weights], weights])
    # the base is the mean accuracy moved along the contributions; its error follows theirs and the mean's own
    spread = centring @ np.vstack([-x.mean(0) @ directions, directions])
    errors = np.sqrt(variance * (spread**2).sum(1))
    errors[0] = (errors[0] ** 2 + variance / len(y)) ** 0.5
    stated = StandardErrors.checked(space, float(errors[0]), *decisions.ragged(errors[1:]))
    estimator = BilinearEstimator.from_arrays(space, float(values[0]), *decisions.ragged(values[1:]), stated)
    # directions that are left out bias contributions towards each other, as shrinking does
    comparisons = compared_networks(space, space.rows(architectures), y)
    return replace(estimator, comparisons=comparisons, provenance={"networks": len(y), "shrunk": True})


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


def _fit_gram(gram: np.ndarray, y: np.ndarray, seed: int) -> _Fit:
    """From the products of all networks' features with each other."""
    held_out, fitted = _split(len(y), seed)
    inner, across = gram[np.ix_(fitted, fitted)], gram[np.ix_(held_out, fitted)]
    mean = inner.mean(0)
    across = across - across.mean(1, keepdims=True) - mean + mean.mean()
    parts = _decompose_gram(inner - mean - mean[:, None] + mean.mean())
    rank = _best_rank(parts, y[fitted], across, y[held_out])
    error = float(np.sqrt(np.mean((_predictions(parts, y[fitted], across)[rank] - y[held_out]) ** 2)))
    mean = gram.mean(0)
    u, squares = _decompose_gram(gram - mean - mean[:, None] + mean.mean())
    rank = min(rank, len(squares))
    dual = u[:, :rank] @ ((u[:, :rank].T @ (y - y.mean())) / squares[:rank])
    return _Fit(dual, float(y.mean() - mean @ dual), error)


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


def _predictions(parts: tuple[np.ndarray, np.ndarray], y: np.ndarray, across: np.ndarray) -> np.ndarray:
    """(ranks from 0, networks): what fits of every rank predict for networks outside."""
    u, squares = parts
    steps = (across @ u) * ((u.T @ (y - y.mean())) / squares)
    return y.mean() + np.concatenate([np.zeros((len(across), 1)), np.cumsum(steps, axis=1)], axis=1).T


def _best_rank(parts: tuple[np.ndarray, np.ndarray], y: np.ndarray, across: np.ndarray, y_outside: np.ndarray) -> int:
    errors = ((_predictions(parts, y, across) - y_outside) ** 2).mean(1)
    return int(np.argmin(errors))


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
