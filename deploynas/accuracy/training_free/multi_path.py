"""What single decisions add to a score, from batches in which every image takes its own path through a supernet that
was never trained.

A score that is a mean over images needs no network of its own for that: of every image its own number is read, and all
contributions are fitted to all numbers at once, as those of accuracy are (`contributions`). The numbers are derivatives
of the outputs along one direction in the space of all weights, so one forward pass that carries derivatives along has
them for all images:

`trace`    along a random direction u the squared change of an image's outputs is |J u|^2, on average over u the squared
           length of its Jacobian, |J|^2.
`synflow`  the sum of weight x derivative is the derivative along the weights themselves: exact.

Every batch has weights, direction and images of its own; what a batch has in common is taken out as a difficulty of
its own, and batches are what standard errors count. Contributions are to the logarithm: the layers of a network
multiply its gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.func import functional_call

from deploynas.accuracy.contributions import Contributions, pooled_values
from deploynas.accuracy.training_free.initialisation import fixed_statistics, lecun
from deploynas.accuracy.training_free.score import ScoringBatch
from deploynas.accuracy.training_free.synflow import made_positive
from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.space import Space
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths

BatchSource = Callable[[int], ScoringBatch]  # the batch of a number, always the same one


class PathNumbers(Protocol):
    """Of every image a positive number that its path decides."""

    def __call__(self, supernet: nn.Module, batch: ScoringBatch, paths: Tensor, seed: int) -> Tensor: ...


def measure_paths(
    space: Space, score: str, source: BatchSource, passes: int, seed: int = 0, on_progress: OnProgress = silent
) -> Contributions:
    """Contributions to the logarithm of a score that can be read image by image."""
    if score not in PATH_NUMBERS:
        raise InputError(
            f"`{score}` cannot be read image by image", hint="contributions to it are fitted to whole networks"
        )
    supernet, rng = Supernet(space), np.random.default_rng((seed, 1))
    drawn, numbers = [], []
    for number in range(passes):
        batch = source(number)
        rows = space.decisions.draw(len(batch), rng)
        lecun(supernet, seed + number)
        found = PATH_NUMBERS[score](supernet, batch, as_paths(rows), seed + number)
        drawn.append(rows)
        numbers.append(found.double().clamp_min(1e-300).log().numpy())
        on_progress((number + 1) / passes, f"batch {number + 1} of {passes}")
    return pooled_values(space, np.stack(drawn), np.stack(numbers), "projection")


def _trace(supernet: nn.Module, batch: ScoringBatch, paths: Tensor, seed: int) -> Tensor:
    fixed_statistics(supernet, batch.images, paths)
    generator = torch.Generator().manual_seed(seed)
    direction = {name: torch.randn(weight.shape, generator=generator) for name, weight in supernet.named_parameters()}
    return (derivative(supernet, direction, batch.images, paths) ** 2).sum(1) ** 0.5


def _synflow(supernet: nn.Module, batch: ScoringBatch, paths: Tensor, seed: int) -> Tensor:
    positive = made_positive(supernet)
    ones = torch.ones_like(batch.images, dtype=torch.float64)
    weights = {name: weight.detach() for name, weight in positive.named_parameters()}
    return derivative(positive, weights, ones, paths).sum(1)


PATH_NUMBERS: dict[str, PathNumbers] = {"trace": _trace, "synflow": _synflow}


@torch.no_grad()
def derivative(network: nn.Module, direction: dict[str, Tensor], images: Tensor, paths: Tensor) -> Tensor:
    """(images, outputs): how outputs change as all weights move along a direction."""
    buffers = dict(network.named_buffers())
    with forward_ad.dual_level():
        weights = {
            name: forward_ad.make_dual(weight.detach(), direction[name]) for name, weight in network.named_parameters()
        }
        outputs = functional_call(network, (weights, buffers), (images, paths))
        return forward_ad.unpack_dual(outputs).tangent
