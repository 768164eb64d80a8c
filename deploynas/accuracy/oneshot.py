"""How images fare in a supernet: along a path each, along one path for all, or in a network of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.accuracy.decisions import Decisions
from deploynas.accuracy.samples import Scores
from deploynas.space import Architecture
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet

Stream = Callable[[], Iterable[tuple[Tensor, Tensor]]]  # starts over at every call: batches of images and labels


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class OneShot:
    """Scores of a supernet on a validation set: the `Measure` that samples are taken with."""

    def __init__(self, supernet: Supernet, validation: Stream, images: int) -> None:
        self.supernet = supernet.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.validation, self._images = validation, images
        self.decisions = Decisions(supernet.space)

    @property
    def images(self) -> int:
        return self._images

    def __call__(self, paths: np.ndarray) -> Scores:
        if len(paths) == 1:  # one network at its own width is faster than a path an image
            network = self.decisions.architecture_of(paths[0])
            return self._scores(lambda images, _: self.supernet(images, network))
        rows = torch.from_numpy(paths.astype(np.int64))
        return self._scores(lambda images, start: self.supernet(images, rows[start : start + len(images)]))

    def alone(self, architecture: Architecture, recalibrate: Callable[[nn.Module], None]) -> Scores:
        """Of one sub-network cut out, with batch-norm statistics of its own."""
        network = extract(self.supernet, architecture).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
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
