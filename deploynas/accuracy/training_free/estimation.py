"""From a space and a batch, with nothing trained, to an estimator that ranks; held against one-shot accuracy if asked.

Start here. `multi_path` and `whole_networks` are the two ways to what a decision is worth; every score says which is
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deploynas.accuracy.estimator_file import EstimatorValidation
from deploynas.accuracy.registry import require_known
from deploynas.accuracy.samples import Pass
from deploynas.accuracy.shrinkage import shrunk
from deploynas.accuracy.training_free.estimator import TrainingFreeEstimator
from deploynas.accuracy.training_free.multi_path import BatchSource, measure_paths
from deploynas.accuracy.training_free.registry import DEFAULT_SCORE, TRAINING_FREE_SCORES
from deploynas.accuracy.training_free.score import load_score
from deploynas.accuracy.training_free.whole_networks import measure_networks
from deploynas.accuracy.validation import validate
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Space

BATCHES, NETWORKS = 64, 200  # when nothing is asked for: batches of images with paths of their own; whole networks
MIN_NETWORKS = 20


@dataclass(frozen=True)
class TrainingFreeSettings:
    score: str = DEFAULT_SCORE
    passes: int | None = None  # batches, or whole networks, as the score is read; None: as many as usual
    seed: int = 0

    def __post_init__(self) -> None:
        require_known("training-free score", self.score, TRAINING_FREE_SCORES)
        if self.passes is not None and self.passes < 2:
            raise InputError(f"a training-free estimate takes at least 2 passes, got {self.passes}")


def estimate_training_free(
    space: Space, source: BatchSource, settings: TrainingFreeSettings, on_progress: OnProgress = silent
) -> TrainingFreeEstimator:
    """What every decision adds to the score's logarithm."""
    score = load_score(settings.score)
    reading = score.reading
    if reading == "multi-path":
        passes = settings.passes or BATCHES
        found = shrunk(measure_paths(space, settings.score, source, passes, settings.seed, on_progress), "projection")
        worth = found.estimator()
    elif reading == "networks":
        passes = settings.passes or NETWORKS
        if passes < MIN_NETWORKS:
            raise InputError(f"`{settings.score}` is fitted to whole networks, at least {MIN_NETWORKS}, got {passes}")
        worth = replace(measure_networks(space, score, source, passes, settings.seed, on_progress), comparisons=())
    else:
        raise AssertionError(reading)
    about = {"method": "training-free", "score": settings.score, "reading": reading, "passes": passes}
    about |= {"images": len(source(0)), "seed": settings.seed}
    return TrainingFreeEstimator(space, settings.score, reading, worth, provenance=about)


def held_against_accuracy(estimator: TrainingFreeEstimator, unseen: Sequence[Pass]) -> TrainingFreeEstimator:
    """With rank correlations to one-shot accuracies of networks, and nothing else: there is no error to state."""
    found = validate(estimator, unseen)
    ranks = {"kendall_tau", "kendall_tau_interval", "spearman", "spearman_interval", "noise_ceiling"}
    kept = found.model_dump(include={"networks", "images", "measured_std", "noise_ceiling_spearman", *ranks})
    return replace(estimator, validation=EstimatorValidation.model_validate(kept))
