"""What every option is worth, with a standard error, read off validation passes (METHODS: bilinear estimator).

`pooled` fits all contributions to all samples at once, every image with a difficulty of its own. `grouped`
takes means over the samples that chose an option. `per_decision` compares a pass that fixes an option with one
that fixes none, as the paper does. Standard errors are those of a new draw of paths *and* of images of the same kind:
images are the clusters, so what images disagree about counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator, StandardErrors
from deploynas.accuracy.contrasts import Contrasts
from deploynas.accuracy.registry import ESTIMANDS, Estimand, Score, require_known
from deploynas.accuracy.samples import Pass
from deploynas.space import Space

CHUNK_ENTRIES = 2_000_000  # of the matrix of contrasts that is in memory at once


@dataclass(frozen=True)
class Contributions:
    """A value and a standard error for the base and, as vectors, for every option of every decision.

    `covariance` is that of the vector's errors; `clusters` are the images, or batches of them, that all of it rests on.
    None: not known.
    """

    space: Space
    base: float
    base_se: float
    values: np.ndarray
    errors: np.ndarray
    covariance: np.ndarray | None = None
    clusters: int | None = None

    @property
    def largest_error(self) -> float:
        return float(self.errors.max())

    def estimator(self) -> BilinearEstimator:
        depth, block = self.space.decisions.ragged(self.values)
        errors = StandardErrors.checked(self.space, self.base_se, *self.space.decisions.ragged(self.errors))
        return BilinearEstimator.from_arrays(self.space, self.base, depth, block, errors)

    def in_accuracy(self, accuracy: Contributions) -> Contributions:
        """These, of the log-likelihood, on the scale of accuracy: the weighted slope of one on the other.

        One number is all that is learned from the noisier contributions of accuracy; its own error, and what an
        effect on likelihood says about accuracy beyond it, are not in the standard errors.
        """
        weights = 1 / np.maximum(accuracy.errors, 1e-12) ** 2
        spread = float((weights * self.values**2).sum())
        slope = float((weights * self.values * accuracy.values).sum()) / spread if spread > 0 else 0.0
        return Contributions(
            self.space,
            accuracy.base,
            accuracy.base_se,
            slope * self.values,
            abs(slope) * self.errors,
            None if self.covariance is None else slope**2 * self.covariance,
            self.clusters,
        )


def pooled(space: Space, passes: Sequence[Pass], score: Score, estimand: Estimand) -> Contributions:
    """Least squares over all samples of all passes, with a random effect per image (quasi-demeaning).

    Paths are drawn independently of images, so the effect may be random instead of fixed: what images differ
    in is removed as far as their number of visits allows, and one visit each is no special case.
    """
    paths = np.stack([p.paths for p in passes], axis=1)
    return pooled_values(space, paths, np.stack([p.scores.values(score) for p in passes], axis=1), estimand)


def pooled_values(space: Space, paths: np.ndarray, y: np.ndarray, estimand: Estimand) -> Contributions:
    """The same of any number y (images, visits) that came of paths (images, visits, columns): images are clusters."""
    contrasts = Contrasts(space.decisions, estimand)
    visits, chunk = y.shape[1], max(1, CHUNK_ENTRIES // (y.shape[1] * contrasts.size))
    total, between = (np.zeros((contrasts.size, contrasts.size)) for _ in range(2))
    total_y, between_y = np.zeros(contrasts.size), np.zeros(contrasts.size)
    parts = [slice(i, i + chunk) for i in range(0, len(y), chunk)]
    for part in parts:
        x = _visits(contrasts, paths[part])
        mean, y_mean = x.mean(1), y[part].mean(1)
        flat = x.reshape(-1, contrasts.size)
        total += flat.T @ flat
        total_y += flat.T @ y[part].ravel()
        between += visits * mean.T @ mean
        between_y += visits * mean.T @ y_mean
    plain = _solve(total, total_y)
    share = _demeaning(contrasts, paths, y, plain, parts)
    removed = 2 * share - share**2  # sum of (x - share * mean)^2 = total - removed * between
    inverse = np.linalg.pinv(total - removed * between, hermitian=True)
    theta = inverse @ (total_y - removed * between_y)
    meat = np.zeros_like(total)
    for part in parts:
        x = _visits(contrasts, paths[part])
        residual = y[part] - x @ theta
        x -= share * x.mean(1, keepdims=True)
        residual = residual - share * residual.mean(1, keepdims=True)
        images = np.einsum("ivp,iv->ip", x, residual)
        meat += images.T @ images
    combine = contrasts.contributions
    values = combine @ theta
    covariance = combine @ inverse @ meat @ inverse @ combine.T * len(y) / max(1, len(y) - 1)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0))
    return Contributions(space, float(values[0]), float(errors[0]), values[1:], errors[1:], covariance[1:, 1:], len(y))


def _visits(contrasts: Contrasts, paths: np.ndarray) -> np.ndarray:
    images, visits, columns = paths.shape
    return contrasts.matrix(paths.reshape(-1, columns)).reshape(images, visits, contrasts.size)


def _solve(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.linalg.lstsq(matrix, vector, rcond=None)[0]


def _demeaning(
    contrasts: Contrasts, paths: np.ndarray, y: np.ndarray, theta: np.ndarray, parts: Sequence[slice]
) -> float:
    """How much of its mean to take from every image: 0 when images are all alike, towards 1 with many visits."""
    visits = y.shape[1]
    if visits == 1:
        return 0.0
    residual = np.concatenate([y[part] - _visits(contrasts, paths[part]) @ theta for part in parts])
    within = float(residual.var(axis=1, ddof=1).mean())
    of_means = float(residual.mean(axis=1).var())
    return 0.0 if of_means <= 0 else 1 - min(1.0, within / (visits * of_means)) ** 0.5


def grouped(space: Space, passes: Sequence[Pass], score: Score, estimand: Estimand, batch: int = 1) -> Contributions:
    """Means over the samples that chose an option; `batch` images in a row share a path and are one sample.

    An option that no sample chose is worth nothing (or, for `paper`, what its depth is), with the error of a single
    sample.
    """
    require_known("estimand", estimand, ESTIMANDS)
    decisions = space.decisions
    starts = np.arange(0, len(passes[0].paths), batch)
    weights = np.diff([*starts, len(passes[0].paths)]).astype(float)
    groups = _Groups(
        np.stack([np.add.reduceat(p.scores.values(score), starts) / weights for p in passes]),
        np.tile(weights, (len(passes), 1)),
    )
    paths = np.stack([p.paths[starts] for p in passes])
    everyone = np.ones(paths.shape[:2], dtype=bool)
    values, single = np.zeros(len(decisions)), np.full(len(decisions), float(groups.y.std()))
    influence = np.zeros((len(decisions), len(starts)))  # of every cluster on every contribution
    for column, size in enumerate(decisions.sizes):
        choice = column - len(decisions.groups)
        candidates = reference = everyone
        if choice >= 0:
            group, home = decisions.places[choice][0], decisions.home[choice]
            candidates = paths[:, :, group] == home if estimand == "paper" else paths[:, :, group] >= home
            reference = everyone if estimand == "paper" else candidates
        for option in range(size):
            here = candidates & (paths[:, :, column] == option)
            index = decisions.starts[column] + option
            if here.sum() > 1:
                values[index], influence[index] = groups.difference(here, reference)
                single[index] = 0
            elif choice >= 0 and estimand == "paper":
                values[index] = values[decisions.starts[group] + home]
    covariance = groups.covariance(influence) + np.diag(single**2)
    base_se = float(groups.covariance(groups.influence(everyone)[None])[0, 0]) ** 0.5
    errors = np.sqrt(np.diag(covariance))
    return Contributions(space, groups.mean(everyone), base_se, values, errors, covariance, len(starts))


@dataclass(frozen=True)
class _Groups:
    """Samples (pass, batch) with weights; the same batch in all passes is one cluster."""

    y: np.ndarray
    weights: np.ndarray

    def mean(self, here: np.ndarray) -> float:
        return float(np.average(self.y, weights=self.weights * here))

    def influence(self, here: np.ndarray) -> np.ndarray:
        """What every cluster adds to the error of a group's mean."""
        w = self.weights * here
        return (w * (self.y - self.mean(here)) / w.sum()).sum(axis=0)

    def difference(self, here: np.ndarray, reference: np.ndarray) -> tuple[float, np.ndarray]:
        """Between the means of two groups that share members, and what every cluster adds to its error."""
        return self.mean(here) - self.mean(reference), self.influence(here) - self.influence(reference)

    def covariance(self, influence: np.ndarray) -> np.ndarray:
        """Of the errors of several means or differences, from what every cluster adds to each."""
        clusters = influence.shape[1]
        return influence @ influence.T * clusters / max(1, clusters - 1)


def per_decision(space: Space, passes: Sequence[Pass], score: Score, estimand: Estimand) -> Contributions:
    """The paper's way: rounds of 1 + len(decisions) passes, the first free, each other with one option fixed.

    An image is compared with itself, so its own difficulty cancels.
    """
    require_known("estimand", estimand, ESTIMANDS)
    decisions = space.decisions
    length = 1 + len(decisions)
    rounds = len(passes) // length
    y = np.zeros((length, len(passes[0].scores.right)))
    for i, p in enumerate(passes[: rounds * length]):
        y[i % length] += p.scores.values(score) / rounds
    images = y.shape[1]
    differences = np.zeros((len(decisions), images))
    for column, where in enumerate(decisions.slices):
        rows = y[1 + where.start : 1 + where.stop]
        is_choice = column >= len(decisions.groups)
        differences[where] = rows - (rows.mean(0) if is_choice and estimand == "projection" else y[0])
    covariance = np.cov(differences) / images
    base_se = float(y[0].std(ddof=1)) / images**0.5
    errors = np.sqrt(np.diag(covariance))
    return Contributions(space, float(y[0].mean()), base_se, differences.mean(1), errors, covariance, images)
