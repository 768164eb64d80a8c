"""How images fare in a supernet: each along its own path, all along one path, or in a network cut out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.accuracy.samples import Scores
from deploynas.space import Architecture
from deploynas.supernet.extraction import extract
from deploynas.supernet.input_size import for_any_size
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths

Stream = Callable[[], Iterable[tuple[Tensor, Tensor]]]  # starts over at every call: batches of images and labels


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class SupernetMeasure:
    """Scores of a supernet on a validation set: the `Measure` that samples are taken with."""

    def __init__(self, supernet: Supernet, validation: Stream, images: int) -> None:
        self.supernet = supernet.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.validation, self._images = validation, images

    @property
    def images(self) -> int:
        return self._images

    def __call__(self, paths: np.ndarray) -> Scores:
        if len(paths) == 1:  # one network at its own width is faster than a path for each image
            (network,) = self.supernet.space.architectures(paths)
            return self._scores(lambda images, _: self.supernet(images, network))
        rows = as_paths(paths)
        return self._scores(lambda images, start: self.supernet(images, rows[start : start + len(images)]))

    def alone(self, architecture: Architecture, recalibrate: Callable[[nn.Module], None]) -> Scores:
        """Of one sub-network cut out, with batch-norm statistics of its own."""
        alone = extract(self.supernet, architecture).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        network = for_any_size(alone, architecture)
        recalibrate(network)
        network.eval()
        return self._scores(lambda images, _: network(images))

    @torch.inference_mode()
    def _scores(self, run: Callable[[Tensor, int], Tensor]) -> Scores:
        right, log_likelihood, start = [], [], 0
        for images, labels in self.validation():
            logits = run(images, start).float()
            start += len(images)
            right.append(logits.argmax(1) == labels)
            log_likelihood.append(-nn.functional.cross_entropy(logits, labels, reduction="none"))
        return Scores(torch.cat(right).cpu().numpy(), torch.cat(log_likelihood).cpu().numpy())
