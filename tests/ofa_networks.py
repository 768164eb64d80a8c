"""Once-for-all's own supernets, from its package `ofa`, beside the spaces that say the same."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from ofa.imagenet_classification.elastic_nn.networks import OFAMobileNetV3, OFAProxylessNASNets
from torch import nn

from deploynas.space import Architecture

ELASTIC = {"ks_list": [3, 5, 7], "expand_ratio_list": [3, 4, 6], "depth_list": [2, 3, 4], "dropout_rate": 0}
OFA_SPACES = ("ofa-mbv3", "ofa-mbv3-w1.2", "ofa-proxyless")


def ofa_supernet(space_name: str) -> nn.Module:
    """As `ofa.model_zoo.ofa_net` makes it, which would download weights."""
    if space_name == "ofa-mbv3":
        return OFAMobileNetV3(width_mult=1.0, **ELASTIC)
    if space_name == "ofa-mbv3-w1.2":
        return OFAMobileNetV3(width_mult=1.2, **ELASTIC)
    if space_name == "ofa-proxyless":
        return OFAProxylessNASNets(width_mult=1.3, **ELASTIC)
    raise ValueError(space_name)


@dataclass(frozen=True)
class Setting:
    """What `set_active_subnet` takes: of every block its kernel and ratio, of every stage its depth."""

    kernels: list[int]
    ratios: list[int]
    depths: list[int]

    @classmethod
    def of(cls, architecture: Architecture) -> Setting:
        kernels, ratios = [], []
        for stage, choices in zip(architecture.space.stages, architecture.choices, strict=True):
            unused = stage.max_depth - len(choices)
            for config in [*(stage.configs[c] for c in choices), *[stage.configs[0]] * unused]:
                kernels.append(int(config.factors()["kernel"]))
                ratios.append(int(config.factors()["expansion"]))
        return cls(kernels, ratios, list(architecture.depths))

    def apply(self, net: nn.Module) -> None:
        net.set_active_subnet(self.kernels, self.ratios, self.depths)


@torch.no_grad()
def macs(network: nn.Module, images: torch.Tensor) -> int:
    """Multiplications of convolutions and matrix products, for one image."""
    counts: list[int] = []

    def count(layer: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        pixels = output.shape[2] * output.shape[3] if output.dim() == 4 else 1
        counts.append(layer.weight.numel() * pixels)

    layers = [module for module in network.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(count) for layer in layers]
    network.eval()(images[:1])
    for handle in handles:
        handle.remove()
    return sum(counts)
