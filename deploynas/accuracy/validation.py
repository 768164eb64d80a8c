"""How well an estimator ranks sub-networks that had no part in it, and how well anything could.

Rank correlations and errors come with bootstrap intervals over networks. The noise ceiling is how well two
halves of the validation images agree with each other about the same networks: a ranking is not known better
than that on half of the images. Ablations leave out the depth terms or the block terms, as the paper's Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import EstimatorValidation, RankCorrelation
from deploynas.accuracy.samples import Pass, means
from deploynas.space.coefficients import Estimator

RESAMPLES = 500
HALVINGS = 20
MIN_NETWORKS = 3


def validate(estimator: Estimator, unseen: Sequence[Pass], seed: int = 0) -> EstimatorValidation:
    """`unseen` are passes of single networks, drawn apart from whatever the estimator saw."""
    networks = estimator.space.architectures(np.stack([p.paths[0] for p in unseen]))
    measured = means(unseen, "accuracy")
    predicted = np.array([estimator.predict(network) for network in networks])
    rng = np.random.default_rng(seed)
    found = judge(predicted, measured, rng)
    ceiling = noise_ceiling(unseen, rng)
    ablations = {}
    if isinstance(estimator, BilinearEstimator):
        for name, part in (("without_depth", _without_depth(estimator)), ("without_block", _without_block(estimator))):
            ablations[name] = rank_correlation(np.array([part.predict(n) for n in networks]), measured)
    return found.model_copy(
        update={
            "images": len(unseen[0].scores.right),
            "noise_ceiling": ceiling.kendall_tau,
            "noise_ceiling_spearman": ceiling.spearman,
            "ablations": ablations,
        }
    )


def judge(predicted: np.ndarray, measured: np.ndarray, rng: np.random.Generator) -> EstimatorValidation:
    """How predictions agree with measurements of the same networks, with intervals by bootstrap over networks."""
    rows = rng.integers(len(measured), size=(RESAMPLES, len(measured)))

    def interval(statistic: Callable[[np.ndarray, np.ndarray], float | None]) -> tuple[float, float] | None:
        draws = [value for r in rows if (value := statistic(predicted[r], measured[r])) is not None]
        return (float(np.quantile(draws, 0.025)), float(np.quantile(draws, 0.975))) if draws else None

    return EstimatorValidation(
        networks=len(measured),
        measured_std=float(measured.std(ddof=1)),
        kendall_tau=kendall(predicted, measured),
        kendall_tau_interval=interval(kendall),
        spearman=spearman(predicted, measured),
        spearman_interval=interval(spearman),
        pearson=pearson(predicted, measured),
        pearson_interval=interval(pearson),
        mean_error=mean_error(predicted, measured),
        mean_error_interval=interval(mean_error),
    )


def noise_ceiling(networks: Sequence[Pass], rng: np.random.Generator) -> RankCorrelation:
    """Between accuracies on two halves of the images, the mean over several ways to halve them."""
    right = np.stack([p.scores.right for p in networks]).astype(np.float32)
    taus, rhos = [], []
    for _ in range(HALVINGS):
        order = rng.permutation(right.shape[1])
        one, other = (right[:, half].mean(1) for half in np.array_split(order, 2))
        taus.append(kendall(one, other))
        rhos.append(spearman(one, other))
    return RankCorrelation(kendall_tau=_mean(taus), spearman=_mean(rhos))


def rank_correlation(predicted: np.ndarray, measured: np.ndarray) -> RankCorrelation:
    return RankCorrelation(kendall_tau=kendall(predicted, measured), spearman=spearman(predicted, measured))


def kendall(a: np.ndarray, b: np.ndarray) -> float | None:
    """None where one of the two ranks nothing."""
    return _known(lambda: stats.kendalltau(a, b).statistic, a, b)


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    return _known(lambda: stats.spearmanr(a, b).statistic, a, b)


def pearson(a: np.ndarray, b: np.ndarray) -> float | None:
    return _known(lambda: stats.pearsonr(a, b).statistic, a, b)


def mean_error(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.abs(predicted - measured).mean())


def _known(statistic: Callable[[], float], a: np.ndarray, b: np.ndarray) -> float | None:
    if len(a) < MIN_NETWORKS or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(statistic())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _without_depth(estimator: BilinearEstimator) -> BilinearEstimator:
    return replace(estimator, depth=tuple(tuple(0.0 for _ in row) for row in estimator.depth))


def _without_block(estimator: BilinearEstimator) -> BilinearEstimator:
    return replace(estimator, block=tuple(tuple(tuple(0.0 for _ in row) for row in stage) for stage in estimator.block))
