"""HNAS: a training-free objective whose two numbers a few real validations choose (Shu et al. 2022, algorithm 7.1).

    minimise over the networks of a pool   kappa / M + mu (M^2 - nu)^2                            (7.7, with t = 1)

kappa is the condition number of the tangent kernel, M one of the scores that measure its size. mu and nu stand for what
the theory does not know. Bayesian optimisation looks for those whose network is the most accurate: a Gaussian process
over (log mu, log nu), and the point with the largest expected improvement next.

Which network a point leads to costs nothing to know. So a point whose network was validated before is never asked
again, and what a network measured is told to the process for the region that leads to it, not for one point alone.
Beside it: as many validations of random networks of the same pool. Nothing here needs torch: a pool is its scores, and
whoever validates knows the networks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.registry import require_known
from deploynas.accuracy.training_free.registry import DEFAULT_METRIC, HNAS_METRICS
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent

Validate = Callable[[int], float]  # the accuracy of the network with this number in the pool, 0..1

STARTS = 3  # random points, before the process has anything to say
MU_STEPS, NU_STEPS = 25, 65  # of the grid of points
MU_RANGE = 1e3  # either way from where both terms differ by as much over the pool
NU_RANGE = 2.0  # beyond the smallest and the largest M^2
TOLD = 6  # points at most of the region that leads to one network
NOISE = 1e-3  # of accuracy, as a share of the variance between networks


@dataclass(frozen=True)
class HnasSettings:
    metric: str = DEFAULT_METRIC  # M
    pool: int = 60  # networks that are scored
    validations: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        require_known("score for HNAS", self.metric, HNAS_METRICS)
        if self.pool < 2:
            raise InputError(f"a pool has at least 2 networks, got {self.pool}")
        if self.validations < 1:
            raise InputError(f"HNAS takes at least one validation, got {self.validations}")


@dataclass(frozen=True)
class PoolScores:
    """kappa and M of every network of a pool."""

    kappa: np.ndarray
    metric: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """kappa / M."""
        return self.kappa / np.maximum(self.metric, 1e-30)

    @property
    def squares(self) -> np.ndarray:
        """M^2."""
        return self.metric**2

    def objective(self, mu: float, nu: float) -> np.ndarray:
        """Of every network; less is better."""
        return self.ratio + mu * (self.squares - nu) ** 2  # (7.7)

    def best(self, mu: float, nu: float) -> int:
        """The number of the network that these lead to."""
        return int(np.argmin(self.objective(mu, nu)))


@dataclass(frozen=True)
class Points:
    """A grid over (mu, nu), even in their logarithms, and the network that each point leads to."""

    mu: np.ndarray
    nu: np.ndarray
    unit: np.ndarray  # [point][2]: the same on 0..1, as the process sees it
    network: np.ndarray

    @classmethod
    def of(cls, pool: PoolScores) -> Points:
        """Around where both terms matter: there mu is the spread of kappa / M over that of M^2, squared."""
        # of kappa / M the better half: kernels that are singular have any kappa
        centre = _spread(pool.ratio, 0.5) / _spread(pool.squares, 0.9) ** 2
        largest = float(pool.squares.max()) or 1.0
        smallest = max(float(pool.squares.min()), 1e-9 * largest)
        mus = np.geomspace(centre / MU_RANGE, centre * MU_RANGE, MU_STEPS)
        nus = np.geomspace(smallest / NU_RANGE, largest * NU_RANGE, NU_STEPS)
        mu, nu = (axis.ravel() for axis in np.meshgrid(mus, nus, indexing="ij"))
        sides = np.meshgrid(np.linspace(0, 1, MU_STEPS), np.linspace(0, 1, NU_STEPS), indexing="ij")
        unit = np.stack([side.ravel() for side in sides], axis=1)
        return cls(mu, nu, unit, np.array([pool.best(*point) for point in zip(mu, nu, strict=True)]))

    def region(self, network: int) -> np.ndarray:
        """Some points that lead to a network, spread over all that do."""
        where = np.flatnonzero(self.network == network)
        return where[np.linspace(0, len(where) - 1, min(TOLD, len(where))).astype(int)]


@dataclass(frozen=True)
class Proposal:
    """What a pair of numbers led to."""

    network: int
    mu: float
    nu: float
    accuracy: float


@dataclass(frozen=True)
class Validated:
    network: int
    accuracy: float


@dataclass(frozen=True)
class HnasOutcome:
    proposals: tuple[Proposal, ...]  # in the order in which they were made; each network once
    random: tuple[Validated, ...]  # as many networks of the pool, whatever their scores

    @property
    def ranked(self) -> list[Proposal]:
        """Most accurate first."""
        return sorted(self.proposals, key=lambda proposal: -proposal.accuracy)

    @property
    def validated(self) -> int:
        """Different networks of either kind: of those that are both, the accuracy is measured once."""
        return len({one.network for one in self.proposals} | {one.network for one in self.random})


def choose(
    pool: PoolScores, validate: Validate, settings: HnasSettings, on_progress: OnProgress = silent
) -> HnasOutcome:
    """Validate what the best numbers are expected to be, until all validations are spent; then random networks.

    Fewer are spent if all networks that any numbers lead to are validated.
    """
    points, rng = Points.of(pool), np.random.default_rng((settings.seed, 11))
    known = dict[int, float]()
    proposals = list[Proposal]()

    def report(done: int, what: str) -> None:
        on_progress(min(1.0, done / (2 * settings.validations)), what)

    while len(proposals) < settings.validations:
        unknown = np.flatnonzero(~np.isin(points.network, list(known)))
        if not len(unknown):
            break
        if len(proposals) < STARTS:
            point = int(rng.choice(unknown))
        else:
            point = int(unknown[np.argmax(_expected_improvement(points, known, unknown, settings.seed))])
        network = int(points.network[point])
        known[network] = validate(network)
        proposals.append(Proposal(network, float(points.mu[point]), float(points.nu[point]), known[network]))
        report(len(proposals), f"validation {len(proposals)} of {settings.validations}")
    random = list[Validated]()
    for network in np.random.default_rng((settings.seed, 13)).permutation(len(pool.kappa))[: len(proposals)].tolist():
        if network not in known:
            known[network] = validate(network)
        random.append(Validated(network, known[network]))
        report(len(proposals) + len(random), f"random network {len(random)} of {len(proposals)}")
    return HnasOutcome(tuple(proposals), tuple(random))


def _expected_improvement(points: Points, known: dict[int, float], unknown: np.ndarray, seed: int) -> np.ndarray:
    """Over the best network so far, at the points that are not known."""
    from scipy.special import ndtr
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    regions = [points.region(network) for network in known]
    told = np.concatenate(regions)
    accuracies = np.repeat(list(known.values()), [len(region) for region in regions])
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern([0.3, 0.3], (0.05, 5.0), nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=NOISE, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length that ends at its bound says that it is long
        process.fit(points.unit[told], accuracies)
    mean, deviation = process.predict(points.unit[unknown], return_std=True)
    gain, deviation = mean - max(known.values()), np.maximum(deviation, 1e-12)
    z = gain / deviation
    return np.asarray(gain * ndtr(z) + deviation * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def _spread(values: np.ndarray, up_to: float) -> float:
    """Between the lowest tenth and a quantile; if that is nothing, something of their size."""
    low, high = np.quantile(values, [0.1, up_to])
    return float(high - low) or float(np.ptp(values)) or float(np.abs(values).max()) or 1.0
