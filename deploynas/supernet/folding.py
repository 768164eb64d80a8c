"""Which layers of a timm block become which operators of the graph: what folding asks every kind of block."""

from __future__ import annotations

from collections.abc import Iterator

from timm.models._efficientnet_blocks import SqueezeExcite
from torch import nn

# name of the operator within its part, the convolution or linear layer (None: only a norm), the batch norm after it
Layer = tuple[str, nn.Module | None, nn.Module | None]


def squeeze_layers(se: nn.Module) -> Iterator[Layer]:
    """timm puts an identity where a block has no squeeze-and-excitation."""
    if isinstance(se, SqueezeExcite):
        yield "se/reduce", se.conv_reduce, None
        yield "se/expand", se.conv_expand, None
