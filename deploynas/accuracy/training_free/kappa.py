"""kappa: the largest over the smallest eigenvalue of the tangent kernel (Chen et al. 2021): how unevenly it learns.

The only score of which less is better. A kernel that is singular in double precision has the largest kappa there is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from deploynas.accuracy.training_free.gradients import tangent_kernel
from deploynas.accuracy.training_free.registry import Reading
from deploynas.accuracy.training_free.score import ScoringBatch

LARGEST = 1e15  # beyond it the smallest eigenvalue is rounding


def condition(kernel: Tensor) -> float:
    eigenvalues = torch.linalg.eigvalsh(kernel)
    largest, smallest = float(eigenvalues[-1]), float(eigenvalues[0])
    return min(largest / smallest, LARGEST) if smallest > 0 else LARGEST


class Kappa:
    reading: Reading = "networks"  # it is about how images relate in one network

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        return condition(tangent_kernel(network, batch.images))

    def rank(self, value: float) -> float:
        return -math.log(value)
