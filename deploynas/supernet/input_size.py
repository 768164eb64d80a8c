"""Images at the input size that a network takes, where the space leaves that open.

Training and estimation handle images at the largest size; whoever runs a network brings them to its own. Shrinking
averages over all pixels, as image libraries do it, so that a network sees here what it will see when it is used.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.space import Architecture, Space


def resized(images: Tensor, space: Space) -> Tensor:
    """As the space takes them; `space` has one input size."""
    size = (space.height, space.width)
    if images.shape[2:] == size:
        return images
    return F.interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)


class Resizing(nn.Module):
    """A network on its own, for images of any size."""

    def __init__(self, network: nn.Module, space: Space) -> None:
        super().__init__()
        self.network, self.space = network, space

    def forward(self, images: Tensor) -> Tensor:
        return self.network(resized(images, self.space))


def for_any_size(network: nn.Module, architecture: Architecture) -> nn.Module:
    """The same network, resizing images if its space has several sizes of them."""
    return Resizing(network, architecture.at_its_size.space) if architecture.space.sizes else network


def at_one_size(network: nn.Module) -> nn.Module:
    """The inverse: the network itself."""
    return network.network if isinstance(network, Resizing) else network
