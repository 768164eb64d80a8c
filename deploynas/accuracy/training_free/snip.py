"""snip: the sum over all weights of |weight times gradient of the mean loss| (Lee et al. 2019).

Element by element: without the absolute values inside the sum, every layer that batch norm follows adds exactly zero,
since no outcome depends on the scale of its weights.
"""

from __future__ import annotations

import math

from torch import nn

from deploynas.accuracy.training_free.gradients import mean_loss_gradient, weights_of
from deploynas.accuracy.training_free.registry import Reading
from deploynas.accuracy.training_free.score import ScoringBatch


class Snip:
    reading: Reading = "networks"  # absolute values of means over images

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        weights = weights_of(network)
        gradient = mean_loss_gradient(network, batch)
        return sum(float((weights[name] * own).double().abs().sum()) for name, own in gradient.items())

    def rank(self, value: float) -> float:
        return math.log(max(value, 1e-300))
