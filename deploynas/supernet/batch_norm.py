"""Batch norm across a whole network; above all its recalibration: statistics measured, not remembered from training.

Training leaves running averages of weights long gone, and a supernet's are those of all paths together.
Here every normalisation gets the exact mean and variance over all batches given, while each batch passes
through normalised by its own statistics, as in training.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from deploynas.space import Architecture
from deploynas.supernet.elastic import ElasticNorm

Batch = tuple[Tensor, Tensor | Architecture | None]  # images, and the paths they take


def set_norm_eps(model: nn.Module, eps: float) -> None:
    """What every normalisation of a network adds to the variance before it divides."""
    for module in model.modules():
        if isinstance(module, (ElasticNorm, nn.BatchNorm2d)):
            module.eps = eps


@torch.no_grad()
def recalibrate(model: nn.Module, batches: Iterable[Batch]) -> None:
    """Replace the statistics of every batch norm that the batches reach; the others keep theirs.

    For a supernet a batch is (images, paths); for a stand-alone network the paths are None.
    """
    moments = [_Moments(m) for m in model.modules() if isinstance(m, (ElasticNorm, nn.BatchNorm2d))]
    handles = [m.norm.register_forward_pre_hook(m.add) for m in moments]
    training = model.training
    try:
        model.train()
        for images, paths in batches:
            model(images) if paths is None else model(images, paths)
    finally:
        for handle in handles:
            handle.remove()
        model.train(training)
    for m in moments:
        m.write()


class _Moments:
    """Count, mean and sum of squared deviations a channel, merged batch by batch (Chan's formula)."""

    def __init__(self, norm: ElasticNorm | nn.BatchNorm2d) -> None:
        self.norm = norm
        rows = norm.running_mean.shape[0] if isinstance(norm, ElasticNorm) else 1
        shape = (rows, norm.weight.shape[0])
        self.count = torch.zeros(shape, dtype=torch.float64, device=norm.weight.device)
        self.average = torch.zeros_like(self.count)
        self.deviation = torch.zeros_like(self.count)

    def add(self, module: nn.Module, arguments: tuple) -> None:
        x, row = arguments[0], arguments[1] if len(arguments) > 1 else 0
        row, n = (row, slice(x.shape[1])), x.numel() // x.shape[1]
        variance, mean = torch.var_mean(x.float(), dim=(0, 2, 3), correction=0)
        variance, mean = variance.double(), mean.double()
        total = self.count[row] + n
        difference = mean - self.average[row]
        self.average[row] += difference * n / total
        self.deviation[row] += variance * n + difference**2 * self.count[row] * n / total
        self.count[row] = total

    def write(self) -> None:
        for known, measured in (
            (self.norm.running_mean, self.average),
            (self.norm.running_var, self.deviation / (self.count - 1).clamp(min=1)),  # unbiased, as torch's
        ):
            if known is not None:
                reached = (self.count > 1).view(known.shape)
                known.copy_(torch.where(reached, measured.view(known.shape).to(known.dtype), known))
