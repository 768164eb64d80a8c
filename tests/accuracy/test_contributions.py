"""Every way of sampling recovers its own estimand, within its own standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import Synthetic

from deploynas.accuracy.contrasts import Contrasts
from deploynas.accuracy.contributions import Contributions, grouped, per_decision, pooled
from deploynas.accuracy.registry import Estimand, Score
from deploynas.accuracy.samples import Samples, Scores
from deploynas.errors import InputError
from deploynas.space import Space

SEEDS = 120


class Noiseless:
    """The worth of a path itself, for every image."""

    def __init__(self, world: Synthetic) -> None:
        self.world, self.images = world, world.images

    def __call__(self, paths: np.ndarray) -> Scores:
        worth = self.world.worth(np.broadcast_to(paths, (self.images, paths.shape[1])))
        return Scores(worth > 0, worth)


def estimate(small: Space, way: str, estimand: Estimand, score: Score, seed: int) -> Contributions:
    samples = Samples(small, Synthetic(small, seed=seed), seed=seed)
    if way == "per-decision":
        passes = [samples.get(f"decision-{estimand}", i) for i in range(1 + len(small.decisions))]
        return per_decision(small, passes, score, estimand)
    if way == "single-path":
        samples.batch = 5
        passes = [samples.get("batch", i) for i in range(10)]
        return grouped(small, passes, score, estimand, batch=5)
    passes = [samples.get("image", i) for i in range(1 if way == "pooled, one visit" else 4)]
    return pooled(small, passes, score, estimand)


@pytest.mark.parametrize("estimand", ["projection", "paper"])
@pytest.mark.parametrize("way", ["per-decision", "single-path", "pooled", "pooled, one visit"])
@pytest.mark.parametrize("score", ["accuracy", "log-likelihood"])
def test_contributions_are_unbiased_and_their_errors_cover(small, way, estimand, score):
    base, values = Synthetic(small).truth(estimand)
    truth = np.array([base, *values])
    found = [estimate(small, way, estimand, score, seed) for seed in range(SEEDS)]
    estimates = np.array([[f.base, *f.values] for f in found])
    errors = np.array([[f.base_se, *f.errors] for f in found])
    # unbiased: the mean over seeds is off by no more than its own error; 4 of them, since there are many
    off = (estimates.mean(0) - truth) / (estimates.std(0, ddof=1) / SEEDS**0.5)
    assert np.abs(off).max() < 4.5
    # honest: stated errors are the true spread, and 95 % intervals hold the truth about as often
    ratio = np.sqrt((errors**2).mean(0)) / estimates.std(0, ddof=1)
    assert 0.85 < np.median(ratio) < 1.2
    covered = (np.abs(estimates - truth) < 1.96 * errors).mean()
    assert 0.92 < covered < 0.98


def test_the_two_estimands_differ_where_depth_and_blocks_interact(small):
    world = Synthetic(small)
    assert np.abs(world.truth("paper")[1] - world.truth("projection")[1]).max() > 0.02


def test_image_effects_make_errors_smaller(small):
    world = Synthetic(small, images=500, seed=1)
    world.difficulty *= 5
    samples = Samples(small, world)
    passes = [samples.get("image", i) for i in range(6)]
    with_effects = pooled(small, passes, "log-likelihood", "projection")
    without = grouped(small, passes, "log-likelihood", "projection")
    assert np.median(with_effects.errors) < 0.5 * np.median(without.errors)


@pytest.mark.parametrize("estimand", ["projection", "paper"])
def test_a_world_of_the_bilinear_form_is_recovered_exactly(small, estimand):
    """Without noise, what `projection` finds predicts every network, and its paper form follows from it."""
    rng = np.random.default_rng(3)
    contrasts = Contrasts(small.decisions, "projection")
    theta = rng.normal(size=contrasts.size)

    class Exact(Synthetic):
        def worth(self, paths: np.ndarray) -> np.ndarray:
            return contrasts.matrix(paths) @ theta

    world = Exact(small)
    paths = small.decisions.draw(world.images, np.random.default_rng(0))
    samples = Samples(small, Noiseless(world))
    found = pooled(small, [samples.get("image", i) for i in range(3)], "log-likelihood", estimand)
    assert found.values == pytest.approx(world.truth(estimand)[1], abs=1e-5)
    if estimand == "projection":
        estimator = found.estimator()
        predicted = [estimator.predict(network) for network in small.architectures(paths[:20])]
        assert predicted == pytest.approx(world.worth(paths[:20]).tolist(), abs=1e-4)


def test_log_likelihood_is_put_on_the_scale_of_accuracy(small):
    world = Synthetic(small, images=3000)
    samples = Samples(small, world)
    passes = [samples.get("image", i) for i in range(4)]
    accuracy = pooled(small, passes, "accuracy", "projection")
    likelihood = pooled(small, passes, "log-likelihood", "projection")
    doubled = Contributions(small, 0.0, 0.0, 2 * likelihood.values, 2 * likelihood.errors)
    scaled = doubled.in_accuracy(accuracy)
    truth = world.truth("projection")[1]
    assert np.abs(scaled.values - truth).mean() < np.abs(accuracy.values - truth).mean()
    assert scaled.base == accuracy.base


def test_an_unknown_estimand_or_score_is_refused(small):
    passes = [Samples(small, Synthetic(small)).get("image", 0)]
    for way in (pooled, grouped, per_decision):
        with pytest.raises(InputError, match="no estimand `median`"):
            way(small, passes, "accuracy", "median")
    with pytest.raises(InputError, match="no score `loss`"):
        pooled(small, passes, "loss", "projection")
