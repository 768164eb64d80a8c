"""Gates on expansion channels, learned: which channels a network can lose (METHODS: width search, Alg. 3).

The weights stand still, and batch norm keeps its statistics: with those of each batch, the norm after the projection
would undo any factor that a whole layer's gates have in common. Only the gates move, down the gradient of the loss and
then towards zero by the soft threshold, which is the proximal operator of the l1 penalty and makes true zeros. A gate
lets through between nothing and all: beyond 1, steps as large as these would run away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.progress import OnProgress, silent
from deploynas.training.batches import Batches, BatchShare, LabelledImages

SHRUNK = 1.5  # gates that the loss does not hold would shrink so far over all steps: they die after two thirds of them
NOISE = 4.0  # the penalty, in typical gradients of a batch: noise alone does not hold a gate


class GatedNetwork(Protocol):
    """A network and its gates, whatever they stand on."""

    @property
    def network(self) -> nn.Module: ...
    @property
    def values(self) -> Sequence[nn.Parameter]:
        """The gates, layer by layer."""
        ...

    def applied(self, values: Sequence[Tensor] | None = None) -> AbstractContextManager[nn.Module]:
        """The network with its gates; with `values`, those, of which each may have a row for every image."""
        ...


@dataclass(frozen=True)
class GateSchedule:
    """How long, on how many images at once, in which order."""

    epochs: int = 1
    batch: int = 64
    seed: int = 0


def soft_threshold(values: Tensor, by: float) -> Tensor:
    """argmin_z (z - v)^2 / 2 + by * |z|: towards zero by so much, and no further."""
    return values.sign() * (values.abs() - by).clamp(min=0)


def channel_importance(
    gates: GatedNetwork, batches: Batches, schedule: GateSchedule, on_progress: OnProgress = silent
) -> list[Tensor]:
    """By how much the loss would change without a channel, to first order: the mean over images of (dL/dgate)^2.

    At a gate of 1 that is Molchanov et al. 2019's, and the same unit in every layer, so that layers can be compared and
    channels added up.
    """
    sums, seen = [torch.zeros_like(value) for value in gates.values], 0
    for images, labels in _training(gates.network, batches, schedule, on_progress, "importance"):
        own = [value.detach().expand(len(images), -1).clone().requires_grad_() for value in gates.values]
        with gates.applied(own) as network:
            loss = F.cross_entropy(network(images), labels, reduction="sum")
        for total, gradient in zip(sums, torch.autograd.grad(loss, own), strict=True):
            total += gradient.square().sum(0)
        seen += len(images)
    return [total / seen for total in sums]


def learn_gates(
    gates: GatedNetwork,
    batches: Batches,
    schedule: GateSchedule,
    weights: Sequence[float] | None = None,
    enough: Callable[[list[int]], bool] = lambda left: False,
    on_progress: OnProgress = silent,
) -> list[Tensor]:
    """Moves the gates; returns what their channels are ranked by: whether they are open, and how long they were.

    `weights`: of each layer's penalty, such as its milliseconds for each channel; None: all alike. It ends as soon as
    `enough` says so of how many gates each layer has left: what is left then has lost no more than it had to.
    """
    steps = schedule.epochs * batches.steps_per_epoch(schedule.batch)
    known = channel_importance(gates, batches, schedule, on_progress)
    typical = float(torch.cat([own / schedule.batch for own in known]).sqrt().mean())
    penalty = NOISE * max(typical, 1e-12)
    rate = SHRUNK / (penalty * steps)
    layers = _in_the_mean_of_channels(weights or [1.0] * len(known), known)
    lived = [torch.zeros_like(value) for value in gates.values]
    for images, labels in _training(gates.network, batches, schedule, on_progress, "gates"):
        with gates.applied() as network:
            loss = F.cross_entropy(network(images), labels)
        gradients = torch.autograd.grad(loss, gates.values)
        with torch.no_grad():
            for value, gradient, layer, alive in zip(gates.values, gradients, layers, lived, strict=True):
                value.copy_(soft_threshold(value - rate * gradient, rate * penalty * layer).clamp(0, 1))
                alive += value.abs()
        if enough([int(value.count_nonzero()) for value in gates.values]):
            break
    # those that still let something through come first, the others in the order in which they closed
    return [alive / steps + (value.detach() > 0) for alive, value in zip(lived, gates.values, strict=True)]


def _in_the_mean_of_channels(weights: Sequence[float], like: Sequence[Tensor]) -> list[float]:
    """The penalty as a whole is as strong as with weights of 1, which is what weights of 0 alone come to."""
    channels = [len(own) for own in like]
    mean = sum(w * n for w, n in zip(weights, channels, strict=True)) / sum(channels)
    return [w / mean if mean else 1.0 for w in weights]


def _training(
    network: nn.Module, batches: Batches, schedule: GateSchedule, on_progress: OnProgress, what: str
) -> Iterator[LabelledImages]:
    """Training batches for a network whose weights stand still."""
    network.eval().requires_grad_(False)
    steps = schedule.epochs * batches.steps_per_epoch(schedule.batch)
    stream = batches.train(schedule.batch, 0, steps, schedule.seed, BatchShare())
    for step, (images, labels) in enumerate(stream):
        yield images, labels
        on_progress((step + 1) / steps, f"{what}, step {step + 1} of {steps}")
