"""A network that was never trained, as a file that can be exported and timed: latency does not depend on the weights.

For a user who has no data yet. Its weights are drawn as timm draws them; images are random where there are none, and
stand in for real ones wherever an export needs some. The file says that it is untrained, and so does all that is made
of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from deploynas.provenance import NetworkLineage
from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import save_network
from deploynas.supernet.extraction import timm_model
from deploynas.supernet.input_size import for_any_size
from deploynas.supernet.network import Supernet
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord, place_beside
from deploynas.training.data import Data, Subset, load_data
from deploynas.training.evaluation import recalibrate_on_train
from deploynas.training.finetune import NETWORK
from deploynas.training.recipe import Augmentation
from deploynas.training.sources import PixelImages

RANDOM = "random"  # the name of data that are none
TRAIN_IMAGES, VALIDATION_IMAGES = 256, 64
MEAN, STD = 0.5, 0.2887  # of uniform pixels


def random_data(space: Space) -> Data:
    """Uniform pixels and uniform labels in the shape of the space's images; classes go by their numbers."""
    largest, rng = space.each_size()[-1], np.random.default_rng(0)

    def part(images: int) -> Subset:
        shape = (images, largest.in_channels, largest.height, largest.width)
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        return Subset(PixelImages.of(pixels, rng.integers(space.classes, size=images)), torch.arange(images))

    classes = tuple(str(number) for number in range(space.classes))
    channels = largest.in_channels
    return Data(
        RANDOM, classes, part(TRAIN_IMAGES), part(VALIDATION_IMAGES), None, (MEAN,) * channels, (STD,) * channels
    )


def data_or_random(text: str, space: Space) -> Data:
    """As `load_data`, which knows no random images: nothing is trained on them."""
    return random_data(space) if text == RANDOM else load_data(text, space)


def untrained_supernet(space: Space, seed: int = 0) -> Supernet:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Supernet(space)


def write_untrained(
    architecture: Architecture, data: Data, folder: Path, lineage: NetworkLineage, seed: int = 0
) -> Path:
    """The network with random weights; batch-norm statistics are of the data, so that activations have a usual size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = timm_model(architecture)
    batches = Batches(data, architecture.space, Augmentation())
    recalibrate_on_train(for_any_size(model, architecture), batches, TRAIN_IMAGES)
    record = CheckpointRecord(
        role="network",
        untrained=True,
        data=data.describe(),
        data_place=place_beside(data.place, folder),
        lineage=lineage,
    )
    path = folder / f"{NETWORK}.safetensors"
    save_network(model.eval(), architecture, path, record.about())
    return path
