"""knas: the root of the mean entry of the tangent kernel (Xu et al. 2021), which is the length of the mean gradient of
the outputs.

At most `trace`.
"""

from __future__ import annotations

import math

from torch import nn

from deploynas.accuracy.training_free.gradients import output_gradients
from deploynas.accuracy.training_free.registry import Reading
from deploynas.accuracy.training_free.score import ScoringBatch


class Knas:
    reading: Reading = "networks"  # pairs of images

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        return math.sqrt(float((output_gradients(network, batch.images).double().mean(0) ** 2).sum()))

    def rank(self, value: float) -> float:
        return math.log(max(value, 1e-300))
