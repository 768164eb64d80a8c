"""A data set as export sees it: batches of arrays, and how an image file becomes one of them."""

from __future__ import annotations

import numpy as np

from deploynas.export.metadata import Preprocessing
from deploynas.export.verification import ImageStream
from deploynas.space import Space
from deploynas.training.batches import Batches
from deploynas.training.data import Data, Subset

SEED = 0  # of the choice of calibration images


def stream(batches: Batches, subset: Subset) -> ImageStream:
    return lambda: ((x.cpu().contiguous().numpy(), y.cpu().numpy()) for x, y in batches.evaluation(subset))


def calibration_subset(data: Data, share: float) -> Subset:
    """A random share of the training images, always the same ones."""
    rows = data.train.rows
    count = max(1, round(share * len(rows)))
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(rows))[:count])
    return Subset(data.train.images, rows[chosen])


def preprocessing(data: Data, space: Space) -> Preprocessing:
    """What `Batches.evaluation` does to an image, in words that `predict.py` understands."""
    mean, std = list(data.mean), list(data.std)
    if space.in_channels == 1 and len(mean) == 3:
        mean, std = [sum(mean) / 3], [sum(std) / 3]
    from_files = data.train.images.pixels is None
    return Preprocessing(
        channels=space.in_channels,
        height=space.height,
        width=space.width,
        resize_shorter_side=round(max(space.height, space.width) * 8 / 7) if from_files else None,
        mean=mean,
        std=std,
    )
