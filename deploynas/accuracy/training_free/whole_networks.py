"""What single decisions add to a score, from whole random networks: each is built, initialised and scored.

For every score that is not a mean over images, such as the length of a mean gradient or a condition number: those have
no meaning for images that take different paths. Least squares over networks (`learned`), on the logarithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.learned import fit_bilinear
from deploynas.accuracy.training_free.initialisation import fixed_statistics, lecun
from deploynas.accuracy.training_free.multi_path import BatchSource
from deploynas.accuracy.training_free.score import Score, ScoringBatch
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture, Space
from deploynas.supernet.extraction import network_alone


def score_network(score: Score, architecture: Architecture, batch: ScoringBatch, seed: int) -> float:
    """As the score is defined, of the network on its own with weights drawn from the seed."""
    (value,) = scores_of_network([score], architecture, batch, seed)
    return value


def scores_of_network(
    scores: Sequence[Score], architecture: Architecture, batch: ScoringBatch, seed: int
) -> list[float]:
    """The same of several scores, of one and the same network."""
    network = fixed_statistics(lecun(network_alone(architecture), seed), batch.images)
    return [score.value(network, batch) for score in scores]


def score_networks(
    score: Score, architectures: Iterable[Architecture], source: BatchSource, seed: int = 0
) -> Iterator[float]:
    """One by one, each with weights and a batch of its own."""
    for number, architecture in enumerate(architectures):
        yield score_network(score, architecture, source(number), seed + number)


def measure_networks(
    space: Space, score: Score, source: BatchSource, networks: int, seed: int = 0, on_progress: OnProgress = silent
) -> BilinearEstimator:
    """Contributions to the logarithm of a score."""
    drawn = space.architectures(space.decisions.draw(networks, np.random.default_rng((seed, 2))))
    ranks = []
    for number, value in enumerate(score_networks(score, drawn, source, seed)):
        ranks.append(score.rank(value))
        on_progress((number + 1) / networks, f"network {number + 1} of {networks}")
    return fit_bilinear(space, drawn, np.array(ranks))
