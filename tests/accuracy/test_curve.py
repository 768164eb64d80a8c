"""What a prediction is worth in measured accuracy, up to the best networks."""

from __future__ import annotations

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.curve import _climb, fit_curve, measure_curve
from deploynas.accuracy.samples import Samples, Scores
from deploynas.space import Space


class Saturating:
    """A supernet whose networks are right as often as their score says, but never more than 80 times in 100."""

    images = 2000

    def __init__(self, estimator: BilinearEstimator) -> None:
        self.estimator = estimator

    def __call__(self, paths: np.ndarray) -> Scores:
        (network,) = self.estimator.space.architectures(paths)
        worth = min(0.8, self.estimator.predict(network))
        right = np.arange(self.images) < worth * self.images
        return Scores(right, np.log(np.where(right, 0.9, 0.1)).astype(np.float32))


def additive(small: Space, rng: np.random.Generator) -> BilinearEstimator:
    depth, block = small.decisions.ragged(0.05 * rng.standard_normal(len(small.decisions)))
    return BilinearEstimator.from_arrays(small, 0.7, depth, block)


def test_a_climb_ends_at_the_best_network(small: Space, rng: np.random.Generator) -> None:
    estimator = additive(small, rng)
    worth = [estimator.predict(network) for network in small.architectures(np.stack(_climb(estimator, 0)))]
    assert worth == sorted(worth)
    best = max(estimator.predict(architecture) for architecture in small.enumerate())
    assert np.isclose(worth[-1], best)


def test_what_saturates_is_expected_to(small: Space, rng: np.random.Generator) -> None:
    estimator = additive(small, rng)
    measure = Saturating(estimator)
    samples = Samples(small, measure)
    curve = measure_curve(estimator, samples, [samples.get("unseen", i) for i in range(40)])
    for predicted, expected in ((0.6, 0.6), (0.75, 0.75), (0.95, 0.8), (2.0, 0.8)):
        assert abs(curve(predicted) - expected) < 0.03


def test_a_curve_never_falls(rng: np.random.Generator) -> None:
    predicted = rng.uniform(0.6, 1.0, 50)
    curve = fit_curve(predicted, predicted + 0.1 * rng.standard_normal(50))
    values = [curve(x) for x in np.linspace(0.5, 1.1, 100)]
    assert values == sorted(values)
