"""The network before any training: its weights drawn, its batch-norm statistics measured once and held fixed.

LeCun's initialisation: every weight normal with variance 1 / fan-in, biases 0, normalisations the identity but for
their statistics. With it a network's outputs keep their size whatever its widths are, which the tangent kernel of the
theory does by its parametrisation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deploynas.space import Architecture
from deploynas.supernet.batch_norm import recalibrate
from deploynas.supernet.elastic import ElasticNorm

Normalisation = (ElasticNorm, nn.BatchNorm2d)


@torch.no_grad()
def lecun(network: nn.Module, seed: int) -> nn.Module:
    """Draw all weights again, in place: the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            fan_in = module.weight[0].numel()
            drawn = torch.randn(module.weight.shape, generator=generator) / fan_in**0.5
            module.weight.copy_(drawn)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, Normalisation):
            module.weight.fill_(1.0)
            module.bias.zero_()
            without_normalisation(module)
    return network


def fixed_statistics(network: nn.Module, images: Tensor, paths: Tensor | Architecture | None = None) -> nn.Module:
    """In place: statistics of this batch, as constants; evaluation mode, so that no image sees another."""
    recalibrate(network, [(images, paths)])
    return network.eval()


@torch.no_grad()
def without_normalisation(network: nn.Module) -> nn.Module:
    """In place: every normalisation the identity (but for the small number that it adds to a variance of 1)."""
    for module in network.modules():
        if isinstance(module, Normalisation):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.zero_()
            module.running_var.fill_(1.0)
    return network.eval()
