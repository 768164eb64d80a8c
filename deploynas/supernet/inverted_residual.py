"""The inverted residual block with torch: its elastic module, what a sub-network inherits, its layers for folding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timm.models._efficientnet_blocks import InvertedResidual as TimmBlock
from torch import Tensor, nn

from deploynas.blocks.expansion import Expansion
from deploynas.supernet.elastic import ElasticNorm, pointwise
from deploynas.supernet.expansion import ElasticExpansion, norm_tensors, norm_views
from deploynas.supernet.folding import Layer, squeeze_layers


class ElasticInvertedResidual(ElasticExpansion):
    def __init__(self, parts: Sequence[Expansion]) -> None:
        super().__init__(parts)
        self.conv_pw = nn.Conv2d(self.parts[0].in_channels, self.mid, 1, bias=False)
        self.bn1 = ElasticNorm(1, self.mid)
        self.conv_dw = nn.Conv2d(self.mid, self.mid, self.kernels[-1], groups=self.mid, bias=False)
        self.bn2 = ElasticNorm(len(self.kernels), self.mid)
        self.se = self._squeeze()
        self.conv_pwl, self.bn3 = self._narrow()

    @property
    def last_norm(self) -> ElasticNorm:
        return self.bn3

    @property
    def wide_norm(self) -> ElasticNorm:
        return self.bn2

    def enter(self, x: Tensor, mid: int) -> Tensor:
        return self.activation(self.bn1(pointwise(x, self.conv_pw.weight[:mid]), 0))

    def look(self, x: Tensor, row: int, mid: int) -> Tensor:
        kernel = self.of_size(self.conv_dw.weight[:mid], self.kernels[row])
        return self.activation(self.bn2(self.convolve(x, kernel, groups=mid), row))

    def own_views(self, config: int) -> Iterator[tuple[str, Tensor]]:
        part = self.parts[config]
        mid = part.mid_channels
        yield "conv_pw.weight", self.conv_pw.weight[:mid]
        yield "conv_dw.weight", self.of_size(self.conv_dw.weight[:mid], part.kernel)
        yield from norm_views("bn1", self.bn1, 0, mid)
        yield from norm_views("bn2", self.bn2, self.kernel_row[config], mid)
        yield from norm_views("bn3", self.bn3, self.output_row[config], part.out_channels)

    def wide_tensors(self) -> Iterator[tuple[Tensor, int]]:
        yield from ((self.conv_pw.weight, 0), (self.conv_dw.weight, 0))
        yield from norm_tensors(self.bn1)
        yield from norm_tensors(self.bn2)

    @staticmethod
    def layers(block: TimmBlock) -> Iterator[Layer]:
        """The layers of timm's block, by the names that the graph gives them."""
        yield "expand", block.conv_pw, block.bn1
        yield "depthwise", block.conv_dw, block.bn2
        yield from squeeze_layers(block.se)
        yield "project", block.conv_pwl, block.bn3
