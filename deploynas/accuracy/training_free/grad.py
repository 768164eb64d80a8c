"""grad: the length of the gradient of the mean loss with respect to all weights (Abdelfattah et al. 2021; NASI's Th
is its square).

For softmax cross-entropy it is at most sqrt(2) times `trace`, whatever the labels are.
"""

from __future__ import annotations

import math

from torch import nn

from deploynas.accuracy.training_free.gradients import mean_loss_gradient
from deploynas.accuracy.training_free.registry import Reading
from deploynas.accuracy.training_free.score import ScoringBatch


class Grad:
    # the square of a mean over images is no mean over images, so images with paths of their own do not add up to it
    reading: Reading = "networks"

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        gradient = mean_loss_gradient(network, batch)
        return math.sqrt(sum(float((own.double() ** 2).sum()) for own in gradient.values()))

    def rank(self, value: float) -> float:
        return math.log(max(value, 1e-300))
