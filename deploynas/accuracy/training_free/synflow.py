"""synflow: the sum over all weights of |weight x derivative of the summed outputs|, of positive weights (Tanaka et al.
2020).

Weights are replaced by their absolute values, normalisation is left out, and the only image is one of ones, so neither
data nor labels matter. Scores of deep networks differ by orders of magnitude: in double precision.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

from deploynas.accuracy.training_free.gradients import weights_of
from deploynas.accuracy.training_free.initialisation import without_normalisation
from deploynas.accuracy.training_free.registry import Reading
from deploynas.accuracy.training_free.score import ScoringBatch


@torch.no_grad()
def made_positive(network: nn.Module) -> nn.Module:
    """A copy without normalisation, every weight its absolute value, in double precision."""
    positive = without_normalisation(copy.deepcopy(network)).double()
    for weight in positive.parameters():
        weight.abs_()
    return positive


class Synflow:
    reading: Reading = "multi-path"

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        positive = made_positive(network)
        ones = torch.ones_like(batch.images[:1], dtype=torch.float64)
        weights = list(positive.parameters())
        gradient = torch.autograd.grad(positive(ones).sum(), weights, allow_unused=True)
        found = weights_of(positive).values()
        return sum(float((w * g).abs().sum()) for w, g in zip(found, gradient, strict=True) if g is not None)

    def rank(self, value: float) -> float:
        return math.log(max(value, 1e-300))
