"""trace: the root of the tangent kernel's trace per image, sqrt(tr(K) / m) (Shu et al. 2022, eq. 7.4).

Its square is the mean over images of the squared length of the Jacobian: of all scores the one that is a mean over
images, so that images which take paths of their own tell what single decisions add to it.
"""

from __future__ import annotations

import math

from torch import nn

from deploynas.accuracy.training_free.gradients import squared_jacobians
from deploynas.accuracy.training_free.registry import Reading
from deploynas.accuracy.training_free.score import ScoringBatch


class Trace:
    reading: Reading = "multi-path"

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        return math.sqrt(float(squared_jacobians(network, batch.images).mean()))

    def rank(self, value: float) -> float:
        return math.log(max(value, 1e-300))
