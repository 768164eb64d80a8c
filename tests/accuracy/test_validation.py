"""Validation says what it measured: correlations, intervals, ablations, and the ceiling that noise sets."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import Synthetic

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.samples import Pass, Samples, Scores
from deploynas.accuracy.validation import kendall, noise_ceiling, validate
from deploynas.space import Space


def perfect(space: Space, world: Synthetic) -> BilinearEstimator:
    """Predicts the worth of a path exactly where the worth is a sum of depth terms only."""
    for table in world.tables[len(space.stages) :]:
        table[:] = 0
    return BilinearEstimator.from_arrays(space, 0.6, *space.decisions.ragged(np.concatenate(world.tables)))


def test_block_terms_of_no_worth_can_be_left_out_and_depth_terms_cannot(small):
    world = Synthetic(small, images=4000)
    estimator = perfect(small, world)
    unseen = [Samples(small, world).get("unseen", i) for i in range(50)]
    found = validate(estimator, unseen)
    assert found.ablations["without_block"].kendall_tau == found.kendall_tau
    assert found.ablations["without_depth"].kendall_tau is None  # it ranks nothing
    assert found.networks == 50 and found.images == 4000


def test_intervals_narrow_with_more_networks(small):
    world = Synthetic(small, images=1000)
    estimator = perfect(small, world)
    samples = Samples(small, world)
    few, many = (validate(estimator, [samples.get("unseen", i) for i in range(n)]) for n in (20, 200))
    widths = [v.kendall_tau_interval[1] - v.kendall_tau_interval[0] for v in (few, many)]
    assert widths[1] < 0.6 * widths[0]


def test_the_ceiling_is_that_of_noise(small):
    """Networks that differ in nothing cannot be ranked; networks far apart are ranked by any half."""
    rng = np.random.default_rng(0)

    def network(chance: float) -> Pass:
        right = rng.random(2000) < chance
        return Pass(small.decisions.draw(1, rng), Scores(right, right.astype(np.float32)))

    alike = noise_ceiling([network(0.7) for _ in range(60)], rng)
    # halves of the same images: no shared noise, so nothing but chance; tau's own error is 0.09 for 60 networks
    assert abs(alike.kendall_tau) < 0.3
    apart = noise_ceiling([network(0.3 + 0.01 * i) for i in range(60)], rng)
    assert apart.kendall_tau > 0.85


def test_a_constant_prediction_has_no_rank_correlation():
    assert kendall(np.ones(5), np.arange(5.0)) is None
    assert kendall(np.arange(5.0), np.arange(5.0)) == pytest.approx(1)
