"""How images fare in a supernet: each along its own path, all along one path, or in a network cut out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.accuracy.samples import Scores
from deploynas.space import Architecture, Space
from deploynas.supernet.elastic import take
from deploynas.supernet.extraction import extract
from deploynas.supernet.input_size import for_any_size
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths

Stream = Callable[[], Iterable[tuple[Tensor, Tensor]]]  # starts over at every call: batches of images and labels


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class SupernetMeasure:
    """Scores of a supernet on a validation set: the `Measure` that samples are taken with.

    Where the input size is open, the same supernet comes once for every size, with statistics of its own.
    """

    def __init__(self, supernets: Sequence[Supernet], validation: Stream, images: int) -> None:
        self.supernets = [one.eval().to(memory_format=torch.channels_last) for one in supernets]  # type: ignore[call-overload]
        self.validation, self._images = validation, images

    @property
    def space(self) -> Space:
        return self.supernets[0].space

    @property
    def images(self) -> int:
        return self._images

    def __call__(self, paths: np.ndarray) -> Scores:
        if len(paths) == 1:  # one network at its own width is faster than a path for each image
            (network,) = self.space.architectures(paths)
            return self._scores(lambda images, _: self.supernets[network.size_index](images, network))
        rows = as_paths(paths)
        return self._scores(lambda images, start: self._logits(images, rows[start : start + len(images)]))

    def alone(self, architecture: Architecture, recalibrate: Callable[[nn.Module], None]) -> Scores:
        """Of one sub-network cut out, with batch-norm statistics of its own."""
        network = self.cut_out(architecture, recalibrate)
        return self._scores(lambda images, _: network(images))

    def cut_out(self, architecture: Architecture, recalibrate: Callable[[nn.Module], None]) -> nn.Module:
        """A sub-network on its own, with inherited weights and batch-norm statistics of its own."""
        alone = extract(self.supernets[architecture.size_index], architecture).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        network = for_any_size(alone, architecture)
        recalibrate(network)
        return network.eval()

    def _logits(self, images: Tensor, paths: Tensor) -> Tensor:
        """Every image in the supernet of its path's size."""
        if len(self.supernets) == 1:
            return self.supernets[0](images, paths)
        logits = torch.empty(len(images), self.space.classes, device=images.device)
        for i, supernet in enumerate(self.supernets):
            own = (paths[:, -1] == i).nonzero().flatten()
            if len(own):
                logits[own.to(images.device)] = supernet(take(images, own.to(images.device)), paths[own]).float()
        return logits

    @torch.inference_mode()
    def _scores(self, run: Callable[[Tensor, int], Tensor]) -> Scores:
        right, log_likelihood, start = [], [], 0
        for images, labels in self.validation():
            logits = run(images, start).float()
            start += len(images)
            right.append(logits.argmax(1) == labels)
            log_likelihood.append(-nn.functional.cross_entropy(logits, labels, reduction="none"))
        return Scores(torch.cat(right).cpu().numpy(), torch.cat(log_likelihood).cpu().numpy())


@torch.inference_mode()
def class_probabilities(network: nn.Module, images: Iterable[tuple[Tensor, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    """(images, classes), and the labels."""
    probabilities, labels = [], []
    for x, y in images:
        probabilities.append(network(x).float().softmax(1).cpu())
        labels.append(y.cpu())
    return torch.cat(probabilities).numpy(), torch.cat(labels).numpy()
