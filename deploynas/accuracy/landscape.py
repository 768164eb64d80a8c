"""The surroundings of a network's weights: the loss along two random directions, and the variance of its gradients.

    s(a, b) = mean loss at w + a d1 + b d2                                  (Shu et al. 2020; Li et al. 2018)

Every filter of a direction is as long as the network's own filter, so that a network whose weights are merely larger
does not look smoother; biases and the parameters of batch norm stay. One pair of directions is drawn; figures are means
over several, with their standard error. The variance is that of the gradients of single images at w, added up over all
weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

RING = 8  # points half way to the edge


@dataclass(frozen=True)
class LandscapeSettings:
    reach: float = 1.0
    points: int = 11  # along each direction
    pairs: int = 5  # of directions
    images: int = 500  # of the loss
    gradients: int = 100  # images whose gradients are taken, one by one
    seed: int = 0


@dataclass(frozen=True)
class Surroundings:
    contour: np.ndarray  # of the first pair
    rises: np.ndarray  # of every pair
    variances: np.ndarray  # of every image: its gradient's squared distance from the mean


def surroundings(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], settings: LandscapeSettings
) -> Surroundings:
    images, labels = (torch.cat(pieces) for pieces in zip(*batches, strict=True))
    moved = copy.deepcopy(network).eval()
    generator = torch.Generator().manual_seed(settings.seed)
    around = _Around(network, moved, images, labels)
    steps = np.linspace(-settings.reach, settings.reach, settings.points)
    angles = 2 * np.pi * np.arange(RING) / RING
    here, contour, rises = around.loss((), ()), None, []
    for _ in range(settings.pairs):
        first, second = ([_direction(weight, generator) for weight in network.parameters()] for _ in range(2))
        if contour is None:
            contour = np.array([[around.loss((a, b), (first, second)) for b in steps] for a in steps])
        ring = [(settings.reach / 2 * np.cos(angle), settings.reach / 2 * np.sin(angle)) for angle in angles]
        rises.append(np.mean([around.loss(point, (first, second)) for point in ring]) - here)
    assert contour is not None
    some = slice(0, settings.gradients)
    return Surroundings(contour, np.array(rises), _variances(network, images[some], labels[some]))


@dataclass(frozen=True)
class _Around:
    network: nn.Module
    moved: nn.Module  # a copy, whose weights are put where the loss is asked for
    images: Tensor
    labels: Tensor

    @torch.no_grad()
    def loss(self, steps: tuple[float, ...], directions: tuple[list[Tensor], ...]) -> float:
        for i, (own, put) in enumerate(zip(self.network.parameters(), self.moved.parameters(), strict=True)):
            put.copy_(own + sum(step * direction[i] for step, direction in zip(steps, directions, strict=True)))
        return float(nn.functional.cross_entropy(self.moved(self.images), self.labels))


def _direction(weight: Tensor, generator: torch.Generator) -> Tensor:
    if weight.dim() < 2:
        return torch.zeros_like(weight)
    drawn = torch.randn(weight.shape, generator=generator).to(weight.device)
    across = tuple(range(1, weight.dim()))
    lengths = [own.detach().square().sum(across, keepdim=True).sqrt() for own in (weight, drawn)]
    return drawn * lengths[0] / lengths[1]


def _variances(network: nn.Module, images: Tensor, labels: Tensor) -> np.ndarray:
    """Of each image. Twice through them, so that not all gradients have to be kept."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    network.eval()
    mean = [torch.zeros_like(weight) for weight in weights]
    for number in range(len(labels)):
        for total, own in zip(mean, _gradient(network, weights, images, labels, number), strict=True):
            total += own / len(labels)
    found = [
        sum(float((own - centre).square().sum()) for own, centre in zip(gradient, mean, strict=True))
        for gradient in (_gradient(network, weights, images, labels, number) for number in range(len(labels)))
    ]
    return np.array(found) * len(labels) / (len(labels) - 1)


def _gradient(
    network: nn.Module, weights: list[nn.Parameter], images: Tensor, labels: Tensor, number: int
) -> tuple[Tensor, ...]:
    loss = nn.functional.cross_entropy(network(images[number : number + 1]), labels[number : number + 1])
    return torch.autograd.grad(loss, weights)
