"""log p(D|A) of a trained supernet's networks, and how it changes as options they do not take are mixed in.

The supernet is the mixture of `training_free.mixture`: every block the sum of its configurations by their weights, with
one-hot weights the network of these choices. A step reads a batch of validation images and speaks for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.errors import InputError
from deploynas.supernet.network import Supernet
from deploynas.supernet.stage_network import StageSupernet

# images and labels, in batches, of positions among the validation images
BatchOf = Callable[[np.ndarray], Iterable[tuple[Tensor, Tensor]]]


class SupernetLikelihood:
    def __init__(self, supernet: Supernet, images: int, batch_of: BatchOf, batch: int = 100, seed: int = 0) -> None:
        if not isinstance(supernet, StageSupernet):
            raise InputError(
                f"space `{supernet.space.name}` is not made of stages of blocks, whose choices a posterior mixes",
                hint="`--sampling random` draws networks without one",
            )
        self.supernet, self.images, self.batch_of = supernet.eval(), images, batch_of
        self.batch, self.seed = min(batch, images), seed
        self.steps_per_epoch = images // self.batch

    def pull(self, row: np.ndarray, number: int) -> tuple[float, np.ndarray]:
        decisions = self.supernet.space.decisions
        images, labels = (torch.cat(own) for own in zip(*self.batch_of(self._positions(number)), strict=True))
        weights = torch.zeros(len(decisions), device=images.device)
        weights[torch.from_numpy(decisions.starts[:-1] + row)] = 1.0
        weights.requires_grad_()
        value = -nn.functional.cross_entropy(self.supernet.mixed(images, weights), labels) * self.images
        (by_option,) = torch.autograd.grad(value, weights)
        return value.item(), by_option.double().cpu().numpy()

    def _positions(self, number: int) -> np.ndarray:
        """Every epoch is a permutation of all images; a last batch that is not full is left out."""
        epoch, step = divmod(number, self.steps_per_epoch)
        order = np.random.default_rng((self.seed, epoch)).permutation(self.images)
        return order[step * self.batch : (step + 1) * self.batch]
