"""Once-for-all's own supernets, from its package `ofa`, beside the spaces that say the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch
from ofa.imagenet_classification.elastic_nn.networks import OFAMobileNetV3, OFAProxylessNASNets
from torch import nn

from deploynas.space import Architecture

ELASTIC = {"ks_list": [3, 5, 7], "expand_ratio_list": [3, 4, 6], "depth_list": [2, 3, 4], "dropout_rate": 0}
OFA_SPACES = ("ofa-mbv3", "ofa-mbv3-w1.2", "ofa-proxyless")


def ofa_supernet(space_name: str, classes: int = 1000) -> nn.Module:
    """As `ofa.model_zoo.ofa_net` makes it, which would download weights."""
    if space_name == "ofa-mbv3":
        return OFAMobileNetV3(classes, width_mult=1.0, **ELASTIC)
    if space_name == "ofa-mbv3-w1.2":
        return OFAMobileNetV3(classes, width_mult=1.2, **ELASTIC)
    if space_name == "ofa-proxyless":
        return OFAProxylessNASNets(classes, width_mult=1.3, **ELASTIC)
    raise ValueError(space_name)


@torch.no_grad()
def randomise(net: nn.Module, seed: int = 0) -> nn.Module:
    """Every tensor away from zeros, ones and identities, where mistakes could hide, and such that images still matter.

    Statistics of batch norm are those of random images in the heaviest network, with noise on top: made up ones would
    let whatever the images say fade away over forty layers.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(tensor: torch.Tensor) -> torch.Tensor:
        return torch.rand(tensor.shape, generator=generator) - 0.5

    for name, tensor in net.state_dict().items():
        if name.endswith("_matrix"):
            tensor.add_(0.3 * noise(tensor))
        elif tensor.dim() > 1:
            tensor.copy_(noise(tensor) * (12 / tensor[0].numel()) ** 0.5)  # variance: 1 / fan-in
        elif name.endswith("weight"):
            tensor.copy_(1 + noise(tensor))
        elif name.endswith("bias"):
            tensor.copy_(noise(tensor))
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    net.set_max_net()
    net.train()(torch.randn(8, 3, 64, 64, generator=generator))
    for norm in norms:
        norm.running_mean.add_(0.3 * noise(norm.running_mean) * norm.running_var.sqrt())
        norm.running_var.mul_(1 + 0.3 * noise(norm.running_var))
    return net.eval()


def older_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As the public checkpoints have them."""
    inside = re.compile(r"^(blocks\.\d+)\.conv\.")
    return {inside.sub(r"\1.mobile_inverted_conv.", name): value for name, value in tensors.items()}


def names_once(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As of layers that are not elastic: no name twice."""
    for twice, once in ((".bn.bn.", ".bn."), (".conv.conv.", ".conv."), (".linear.linear.", ".linear.")):
        tensors = {name.replace(twice, once): value for name, value in tensors.items()}
    return tensors


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


def relative_difference(ours: torch.Tensor | np.ndarray, theirs: torch.Tensor) -> float:
    """The largest difference of two logits over the largest logit."""
    return float((torch.as_tensor(ours) - theirs).abs().max() / theirs.abs().max())


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
