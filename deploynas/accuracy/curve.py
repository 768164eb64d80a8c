"""What a prediction is worth in measured accuracy, also where searches end up.

A sum of contributions ranks networks, but it does not saturate as accuracy does: at the best networks, of which there
are none in a random sample, it promises too much. So networks are climbed to, from random ones to the best by
prediction, and measured on the way; the curve is the monotone regression of what was measured on what was
predicted. It changes no ranking.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.accuracy.estimator_file import Curve
from deploynas.accuracy.samples import Pass, Samples, means
from deploynas.progress import OnProgress, silent
from deploynas.space.coefficients import Estimator

CLIMBS, STEPS = 4, 6  # climbs, and networks measured on each


def measure_curve(
    estimator: Estimator, samples: Samples, unseen: Sequence[Pass], on_progress: OnProgress = silent
) -> Curve:
    """From networks along climbs, and from random ones that were measured anyway."""
    paths = [path for i in range(CLIMBS) for path in _climb(estimator, i)]
    climbed = []
    for i, path in enumerate(paths):
        climbed.append(samples.network(path))
        on_progress((i + 1) / len(paths), f"network {i + 1} towards the best")
    everything = [*unseen, *climbed]
    predicted = _predictions(estimator, np.stack([p.paths[0] for p in everything]))
    return fit_curve(predicted, means(everything, "accuracy"))


def fit_curve(predicted: Sequence[float], measured: Sequence[float] | np.ndarray) -> Curve:
    from sklearn.isotonic import IsotonicRegression

    found = IsotonicRegression(out_of_bounds="clip").fit(predicted, measured)
    return Curve(predicted=found.X_thresholds_.tolist(), measured=found.y_thresholds_.tolist())


def _predictions(estimator: Estimator, rows: np.ndarray) -> list[float]:
    return [estimator.predict(network) for network in estimator.space.architectures(rows)]


def _climb(estimator: Estimator, seed: int) -> list[np.ndarray]:
    """From a random network to one that no single decision improves, decision by decision; `STEPS` of the way."""
    rng = np.random.default_rng((seed, 7))
    decisions = estimator.space.decisions
    path = decisions.draw(1, rng)[0]
    worth, way = _predictions(estimator, path[None])[0], [path]
    stuck = 0
    while stuck < decisions.columns:
        for column in rng.permutation(decisions.columns):
            options = np.repeat(path[None], decisions.sizes[column], axis=0)
            options[:, column] = np.arange(decisions.sizes[column])
            worths = _predictions(estimator, options)
            best = int(np.argmax(worths))
            stuck += 1
            if worths[best] > worth:
                path, worth, stuck = options[best], worths[best], 0
                way.append(path)
    return [way[i] for i in dict.fromkeys(np.linspace(0, len(way) - 1, STEPS).astype(int).tolist())]
