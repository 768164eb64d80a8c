"""A sparse polynomial from samples (CoNAS, eq. 2.3): Lasso, then only the s largest coefficients.

    min over u of  sum over networks w (y - constant - A u)^2 + lambda |u|_1

scikit-learn divides the first term by twice the number of networks, so its `alpha` is lambda / (2 m). The constant is
not penalised. Of A only the columns are made that have a coefficient: along a path of falling lambdas every solution is
checked against all other columns (its optimality conditions), and solved again with those that it misses most.

Lasso shrinks what it keeps. A refit by least squares on the parities that were kept (ours, not the paper's) takes the
shrinkage back. What is not given (lambda, whether to refit) is taken as it predicts held-out networks best.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.parities import MAX_DEGREE, Polynomial, SamplingMatrix
from deploynas.errors import InputError

FOLDS = 5  # parts that are left out in turn
LAMBDAS, RANGE = 24, 1e-3  # on a path: how many, and the last as a share of the first, where nothing is kept
PATIENCE, WORSE = 4, 1.05  # lambdas without better predictions, and how much worse, after which none is tried
STEPS = 3  # of a path to a given lambda, per power of ten
MOST_KEPT = 0.5  # parities per network, where a path ends
CAUTION = 1e-3  # of lambda, within which an optimality condition holds
AT_ONCE = 50  # parities that are taken in before the solution is looked at again


@dataclass(frozen=True)
class RecoverySettings:
    """How a sparse polynomial is recovered; the paper's values are in `CONAS`."""

    degree: int = 2  # of its parities at most
    lasso: float | None = None  # lambda, on the scale of what is fitted; None: the best on held-out networks
    terms: int | None = None  # s; None: all that Lasso keeps
    refit: bool | None = None  # by least squares on what was kept; None: if that predicts held-out networks better

    folds: int = FOLDS  # 0: nothing is left out, so nothing is known of the error, and lambda and refit are given

    @property
    def refits(self) -> tuple[bool, ...]:
        """The variants of a fit that are tried."""
        return (False, True) if self.refit is None else (self.refit,)

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= MAX_DEGREE:
            raise InputError(f"parities have a degree of 1 to {MAX_DEGREE}, got {self.degree}")
        if self.lasso is not None and not 0 < self.lasso < np.inf:
            raise InputError(f"lambda must be positive and finite, got {self.lasso}")
        if self.folds < 2 and (self.folds or self.lasso is None or self.refit is None):
            raise InputError("what is not given is picked by leaving out two parts at least", hint="folds=5")
        if self.terms is not None and self.terms < 1:
            raise InputError(f"at least 1 term must be kept, got {self.terms}")


@dataclass(frozen=True)
class Recovered:
    polynomial: Polynomial
    lasso: float  # lambda
    refitted: bool
    held_out_error: float | None  # root of the mean square on networks that were left out in turn


@dataclass(frozen=True)
class Measured:
    """Networks as bits, what each measured, and how much its squared error counts (1 in the mean)."""

    bits: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, where: np.ndarray) -> Measured:
        return Measured(self.bits[where], self.y[where], self.weights[where])


def recover(
    measured: Measured, settings: RecoverySettings, decision_of: np.ndarray | None = None, seed: int = 0
) -> Recovered:
    """The polynomial, with lambda given or picked, and how well fits like it predict networks that they did not see.

    `decision_of` says which bits exclude each other, see `SamplingMatrix`.
    """
    whole = _Problem(measured, settings, decision_of)
    lambdas = whole.lambdas()
    if not settings.folds:
        (only,) = list(whole.path(lambdas))[-1]
        return Recovered(only, float(lambdas[-1]), settings.refits[0], None)
    part_of = np.random.default_rng(seed).permutation(len(measured)) % settings.folds
    parts = [_LeftOut(measured, part_of == part, settings, decision_of) for part in range(settings.folds)]
    squares: list[np.ndarray] = []  # of errors on networks left out: for every lambda one of each variant
    for errors in zip(*(part.squares(lambdas) for part in parts), strict=False):
        squares.append(np.sum(errors, axis=0))
        if settings.lasso is None and _only_grow([float(own.min()) for own in squares]):
            break
    smallest = [float(own.min()) for own in squares]
    best = int(np.argmin(smallest)) if settings.lasso is None else len(squares) - 1
    variants = list(itertools.islice(whole.path(lambdas), best + 1))
    best, variant = len(variants) - 1, int(np.argmin(squares[len(variants) - 1]))
    error = float(np.sqrt(squares[best][variant] / measured.weights.sum()))
    return Recovered(variants[best][variant], float(lambdas[best]), settings.refits[variant], error)


@dataclass(frozen=True)
class _LeftOut:
    """Some networks, predicted by fits to all the others."""

    measured: Measured
    out: np.ndarray  # a mask
    settings: RecoverySettings
    decision_of: np.ndarray | None

    def squares(self, lambdas: np.ndarray) -> Iterator[list[float]]:
        """Weighted sums of squared errors: for every lambda one of each variant."""
        seen, unseen = self.measured[~self.out], self.measured[self.out]
        # the squared error of a fit is a sum over networks: fewer networks, less of it
        share = len(seen) / len(self.measured)
        for found in _Problem(seen, self.settings, self.decision_of).path(lambdas * share):
            yield [float(unseen.weights @ (variant(unseen.bits) - unseen.y) ** 2) for variant in found]


class _Problem:
    """Lasso on the parities of some networks."""

    def __init__(self, measured: Measured, settings: RecoverySettings, decision_of: np.ndarray | None) -> None:
        self.measured, self.settings = measured, settings
        self.matrix = SamplingMatrix(measured.bits, settings.degree, decision_of)
        self.root = np.sqrt(measured.weights)
        share = measured.weights / measured.weights.sum()
        self.means = self.matrix.products(share)  # of every parity
        self.mean = float(share @ measured.y)
        self.target = measured.y - self.mean

    def pull(self, residual: np.ndarray) -> np.ndarray:
        """Of every parity: half the slope of the squared error. Nothing is kept that pulls less than lambda / 2."""
        weighed = self.measured.weights * residual
        return self.matrix.products(weighed) - self.means * weighed.sum()

    def lambdas(self) -> np.ndarray:
        """From the one at which nothing is kept downwards; to the one that was asked for, if one was."""
        first = 2 * float(np.abs(self.pull(self.target)).max())
        if first <= 0:
            raise InputError("all networks measured the same, so there is nothing to learn")
        asked = self.settings.lasso
        if asked is None:
            return np.geomspace(first, RANGE * first, LAMBDAS)
        steps = 2 + int(np.log10(first / min(asked, first)) * STEPS)
        return np.geomspace(max(first, asked), asked, steps)

    def path(self, lambdas: np.ndarray) -> Iterator[list[Polynomial]]:
        """The variants of the polynomial at every lambda, largest first; ends where too many parities are kept."""
        kept, u = np.empty(0, dtype=int), np.empty(0)
        pull = self.pull(self.target)
        for own in lambdas:
            missed = _strongest(pull, kept, own)
            while True:
                candidates = np.union1d(kept, missed)
                start = np.zeros(len(candidates))
                start[np.searchsorted(candidates, kept)] = u
                columns = self._columns(candidates)
                kept, u = candidates, self._lasso(columns, own, start)
                pull = self.pull(self.target - columns @ u / self.root)
                missed = _strongest(pull, kept, own)
                if not len(missed):
                    break
            kept, u = kept[u != 0], u[u != 0]
            if len(kept) > MOST_KEPT * len(self.measured) and self.settings.lasso is None:
                return
            yield [self._polynomial(kept, u, refit) for refit in self.settings.refits]

    def _columns(self, numbers: np.ndarray) -> np.ndarray:
        return self.root[:, None] * (self.matrix.columns(numbers) - self.means[numbers])

    def _lasso(self, columns: np.ndarray, own: float, start: np.ndarray) -> np.ndarray:
        """By scikit-learn's solver, without what its class checks and copies anew every time."""
        from sklearn import config_context
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import lasso_path

        if not columns.shape[1]:
            return start
        columns, target = np.asfortranarray(columns), self.root * self.target
        with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
            warnings.simplefilter("ignore", ConvergenceWarning)  # parities of one decision depend on each other
            _, found, _ = lasso_path(
                columns, target, alphas=[own / (2 * len(columns))], coef_init=start, check_input=False,
                precompute=columns.T @ columns, Xy=columns.T @ target, max_iter=2000, tol=1e-6,
            )  # fmt: skip
        return np.asarray(found[:, 0])

    def _polynomial(self, kept: np.ndarray, u: np.ndarray, refit: bool) -> Polynomial:
        order = np.argsort(-np.abs(u), kind="stable")[: self.settings.terms]
        numbers, values = kept[order], u[order]
        if refit and len(numbers):
            values = np.linalg.lstsq(self._columns(numbers), self.root * self.target, rcond=1e-8)[0]
        constant = self.mean - float(self.means[numbers] @ values)
        return Polynomial(constant, tuple(self.matrix.term(int(n)) for n in numbers), tuple(values.tolist()))


def _strongest(pull: np.ndarray, kept: np.ndarray, own: float) -> np.ndarray:
    """The parities that must be kept at this lambda and are not: those that pull most, not all at once."""
    outside = np.abs(pull)
    outside[kept] = 0.0
    missed = np.flatnonzero(outside > (1 + CAUTION) * own / 2)
    return missed[np.argsort(-outside[missed], kind="stable")[: AT_ONCE + len(kept) // 4]]


def _only_grow(squares: list[float]) -> bool:
    best = int(np.argmin(squares))
    return len(squares) > best + PATIENCE and squares[-1] > WORSE * squares[best]
