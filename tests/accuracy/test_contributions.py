"""Every way of sampling recovers its own estimand, within its own standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import Synthetic

from deploynas.accuracy.contributions import Contributions, grouped, per_decision, pooled
from deploynas.accuracy.decisions import Contrasts, Decisions, Estimand
from deploynas.accuracy.samples import Samples, Score, Scores

SEEDS = 120


class Noiseless:
    """The worth of a path itself, for every image."""

    def __init__(self, world: Synthetic) -> None:
        self.world, self.images = world, world.images

    def __call__(self, paths: np.ndarray) -> Scores:
        worth = self.world.worth(np.broadcast_to(paths, (self.images, paths.shape[1])))
        return Scores(worth > 0, worth)


def estimate(decisions: Decisions, way: str, estimand: Estimand, score: Score, seed: int) -> Contributions:
    samples = Samples(decisions, Synthetic(decisions, seed=seed), seed=seed)
    if way == "per-decision":
        passes = [samples.get(f"decision-{estimand}", i) for i in range(1 + len(decisions))]
        return per_decision(decisions, passes, score, estimand)
    if way == "single-path":
        samples.batch = 5
        passes = [samples.get("batch", i) for i in range(10)]
        return grouped(decisions, passes, score, estimand, batch=5)
    passes = [samples.get("image", i) for i in range(1 if way == "pooled, one visit" else 4)]
    return pooled(decisions, passes, score, estimand)


@pytest.mark.parametrize("estimand", ["projection", "paper"])
@pytest.mark.parametrize("way", ["per-decision", "single-path", "pooled", "pooled, one visit"])
@pytest.mark.parametrize("score", ["accuracy", "log-likelihood"])
def test_contributions_are_unbiased_and_their_errors_cover(decisions, way, estimand, score):
    base, values = Synthetic(decisions).truth(estimand)
    truth = np.array([base, *values])
    found = [estimate(decisions, way, estimand, score, seed) for seed in range(SEEDS)]
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


def test_the_two_estimands_differ_where_depth_and_blocks_interact(decisions):
    world = Synthetic(decisions)
    assert np.abs(world.truth("paper")[1] - world.truth("projection")[1]).max() > 0.02


def test_image_effects_make_errors_smaller(decisions):
    world = Synthetic(decisions, images=500, seed=1)
    world.difficulty *= 5
    samples = Samples(decisions, world)
    passes = [samples.get("image", i) for i in range(6)]
    with_effects = pooled(decisions, passes, "log-likelihood", "projection")
    without = grouped(decisions, passes, "log-likelihood", "projection")
    assert np.median(with_effects.errors) < 0.5 * np.median(without.errors)


@pytest.mark.parametrize("estimand", ["projection", "paper"])
def test_a_world_of_the_bilinear_form_is_recovered_exactly(decisions, estimand):
    """Without noise, what `projection` finds predicts every network, and its paper form follows from it."""
    rng = np.random.default_rng(3)
    contrasts = Contrasts(decisions, "projection")
    theta = rng.normal(size=contrasts.size)

    class Exact(Synthetic):
        def worth(self, paths: np.ndarray) -> np.ndarray:
            return contrasts.matrix(paths) @ theta

    world = Exact(decisions)
    paths = decisions.draw(world.images, np.random.default_rng(0))
    samples = Samples(decisions, Noiseless(world))
    found = pooled(decisions, [samples.get("image", i) for i in range(3)], "log-likelihood", estimand)
    assert found.values == pytest.approx(world.truth(estimand)[1], abs=1e-5)
    if estimand == "projection":
        estimator = found.estimator()
        predicted = [estimator.predict(decisions.architecture_of(path)) for path in paths[:20]]
        assert predicted == pytest.approx(world.worth(paths[:20]).tolist(), abs=1e-4)


def test_log_likelihood_is_put_on_the_scale_of_accuracy(decisions):
    world = Synthetic(decisions, images=3000)
    samples = Samples(decisions, world)
    passes = [samples.get("image", i) for i in range(4)]
    accuracy = pooled(decisions, passes, "accuracy", "projection")
    likelihood = pooled(decisions, passes, "log-likelihood", "projection")
    doubled = Contributions(decisions, 0.0, 0.0, 2 * likelihood.values, 2 * likelihood.errors)
    scaled = doubled.in_accuracy(accuracy)
    truth = world.truth("projection")[1]
    assert np.abs(scaled.values - truth).mean() < np.abs(accuracy.values - truth).mean()
    assert scaled.base == accuracy.base


def test_paths_are_architectures(decisions, rng):
    paths = decisions.draw(50, rng)
    architectures = [decisions.architecture_of(path) for path in paths]
    again = [decisions.architecture_of(path) for path in decisions.paths_of(architectures)]
    assert again == architectures
