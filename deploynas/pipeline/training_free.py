"""An estimator that ranks without anything trained, from a space and its images, or from none: `--data random`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from deploynas import __version__
from deploynas.accuracy.samples import Samples
from deploynas.accuracy.training_free.estimation import (
    TrainingFreeSettings,
    estimate_training_free,
    held_against_accuracy,
)
from deploynas.accuracy.training_free.estimator import TrainingFreeEstimator
from deploynas.accuracy.training_free.multi_path import BatchSource
from deploynas.accuracy.training_free.score import ScoringBatch
from deploynas.accuracy.validation import MIN_NETWORKS
from deploynas.errors import InputError
from deploynas.files import now
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.space import Space
from deploynas.training.batches import Batches
from deploynas.training.data import Data, Subset, load_data
from deploynas.training.recipe import Augmentation

RANDOM = "random"  # the name that stands where a data set is named
IMAGES = 64  # of a batch
LARGEST_SIDE = 64  # of random images: of larger ones a score takes minutes, and noise has no more to tell


@dataclass(frozen=True)
class TrainingFreeOrder:
    """What a ranking is wanted of."""

    space: Space
    data: str | Data = RANDOM
    settings: TrainingFreeSettings = field(default_factory=TrainingFreeSettings)
    supernet: TrainedSupernet | None = None  # whose one-shot accuracies the ranking is held against
    unseen: int = 200  # networks of it


def rank_training_free(
    order: TrainingFreeOrder, out: Path | None = None, on_progress: OnProgress = silent
) -> TrainingFreeEstimator:
    """The estimator, written to `out` if that is given."""
    if order.supernet is not None and order.unseen and order.unseen < MIN_NETWORKS:
        raise InputError(f"validation takes at least {MIN_NETWORKS} networks, or 0, got {order.unseen}")
    share = 0.5 if order.supernet else 1.0
    source = batch_source(order.space, order.data, order.settings.seed)
    found = estimate_training_free(order.space, source, order.settings, lambda f, what: on_progress(share * f, what))
    about = {
        "created": now(),
        "deploynas": __version__,
        "data": order.data if isinstance(order.data, str) else order.data.name,
        "asked": asdict(order.settings),
    }
    found = replace(found, provenance={**found.provenance, **about})
    if order.supernet is not None and order.unseen:
        found = _held_against(found, order.supernet, order.unseen, lambda f, what: on_progress(0.5 + f / 2, what))
    if out is not None:
        found.save(out)
    return found


def _held_against(
    found: TrainingFreeEstimator, supernet: TrainedSupernet, unseen: int, on_progress: OnProgress
) -> TrainingFreeEstimator:
    found.space.require_hash(supernet.space.hash, f"{supernet.path}: its supernet")
    samples = Samples(supernet.space, supernet.one_shot, supernet.samples_folder())
    networks = []
    for number in range(unseen):
        networks.append(samples.get("unseen", number, unseen))
        on_progress((number + 1) / unseen, f"one-shot accuracy of network {number + 1} of {unseen}")
    judged = held_against_accuracy(found, networks)
    return replace(judged, provenance={**judged.provenance, "supernet": supernet.identity})


def batch_source(space: Space, data: str | Data, seed: int = 0) -> BatchSource:
    """Batches by number: standard normal noise with random labels, or training images that are drawn for each."""
    largest = space.each_size()[-1]
    if data == RANDOM:
        shape = (largest.in_channels, min(largest.height, LARGEST_SIDE), min(largest.width, LARGEST_SIDE))
        return lambda number: ScoringBatch.random(IMAGES, shape, space.classes, _seed(seed, number))
    loaded = load_data(data, space) if isinstance(data, str) else data
    batches = Batches(loaded, largest, Augmentation())

    def drawn(number: int) -> ScoringBatch:
        rows = loaded.train.rows
        chosen = np.random.default_rng((seed, number)).choice(len(rows), min(IMAGES, len(rows)), replace=False)
        some = Subset(loaded.train.images, rows[np.sort(chosen)])
        return ScoringBatch.joined(batches.evaluation(some))

    return drawn


def _seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint32)[0])
