"""Accuracy of networks on a subset of the images, and statistics measured on real images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture
from deploynas.supernet.batch_norm import recalibrate
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths
from deploynas.training.batches import Batches
from deploynas.training.data import Subset


@torch.no_grad()
def accuracy(
    model: nn.Module,
    batches: Batches,
    subset: Subset,
    paths: Architecture | np.random.Generator | None = None,
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


def model_output(model: nn.Module, images: Tensor, paths: Architecture | np.random.Generator | None) -> Tensor:
    if isinstance(paths, np.random.Generator):
        assert isinstance(model, Supernet)
        return model(images, as_paths(model.space.decisions.draw(len(images), paths)))
    return model(images) if paths is None else model(images, paths)


def recalibrate_on_train(
    model: nn.Module,
    batches: Batches,
    images: int,
    paths: Architecture | np.random.Generator | None = None,
    on_progress: OnProgress = silent,
) -> None:
    """Measure batch-norm statistics on some of the training images, always the same ones."""
    subset = batches.data.train
    chosen = torch.randperm(len(subset), generator=torch.Generator().manual_seed(0))[:images]
    chosen_images = Subset(subset.images, subset.rows[chosen.sort().values])
    stream = batches.watched(chosen_images, on_progress, "statistics of batch norm")

    def with_paths(x: Tensor) -> Tensor | Architecture | None:
        if not isinstance(paths, np.random.Generator):
            return paths
        assert isinstance(model, Supernet)
        return as_paths(model.space.decisions.draw(len(x), paths))

    recalibrate(model, ((x, with_paths(x)) for x, _ in stream))
