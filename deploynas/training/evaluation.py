"""Accuracy of networks on a subset of the images, and statistics measured on real images."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture
from deploynas.supernet.batch_norm import recalibrate
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import RandomPaths
from deploynas.training.batches import Batches
from deploynas.training.data import Subset

Paths = Architecture | RandomPaths | None  # one sub-network, a random path per image, or the network as it is


@torch.no_grad()
def accuracy(
    model: nn.Module,
    batches: Batches,
    subset: Subset,
    paths: Paths = None,
    on_progress: OnProgress = silent,
) -> float:
    """The fraction that is right: of the network, of one sub-network, or of a random path per image."""
    right = seen = 0
    for images, labels in batches.watched(subset, on_progress, "accuracy"):
        predicted = model_output(model, images, paths).argmax(1)
        right += int((predicted == labels).sum())
        seen += len(labels)
    return right / max(1, seen)


@torch.no_grad()
def right_images(model: nn.Module, batches: Batches, subset: Subset) -> np.ndarray:
    """Whether a network is right about each image."""
    model = model.eval().to(batches.device)
    found = [(model(images).argmax(1) == labels).cpu() for images, labels in batches.evaluation(subset)]
    return torch.cat(found).numpy()


def model_output(model: nn.Module, images: Tensor, paths: Paths) -> Tensor:
    given = paths.draw(len(images)) if isinstance(paths, RandomPaths) else paths
    return model(images) if given is None else model(images, given)


def recalibrate_on_train(
    model: nn.Module,
    batches: Batches,
    images: int,
    paths: Paths = None,
    on_progress: OnProgress = silent,
) -> None:
    """Measure batch-norm statistics on some of the training images, always the same ones."""
    subset = batches.data.train
    chosen = torch.randperm(len(subset), generator=torch.Generator().manual_seed(0))[:images]
    chosen_images = Subset(subset.images, subset.rows[chosen.sort().values])
    stream = batches.watched(chosen_images, on_progress, "statistics of batch norm")
    recalibrate(model, ((x, paths.draw(len(x)) if isinstance(paths, RandomPaths) else paths) for x, _ in stream))


def for_each_size(supernet: Supernet, batches: Batches, images: int) -> tuple[Supernet, ...]:
    """The supernet for every input size, with statistics of that size; as it is where there is one.

    Their weights are shared. Statistics of all sizes together fit none (docs/input-size.md has by how much).
    """
    if not supernet.space.sizes:
        return (supernet,)
    copies = []
    for i in range(len(supernet.space.sizes)):
        one = copy.deepcopy(supernet, memo={id(weight): weight for weight in supernet.parameters()})
        recalibrate_on_train(one, batches, images, RandomPaths(supernet.space, np.random.default_rng(0), i))
        copies.append(one.eval())
    return tuple(copies)
