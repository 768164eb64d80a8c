"""The fused inverted residual block with torch: elastic module, what a sub-network inherits, layers for folding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timm.models._efficientnet_blocks import EdgeResidual
from torch import Tensor, nn

from deploynas.blocks.expansion import Expansion
from deploynas.supernet.elastic import ElasticNorm
from deploynas.supernet.expansion import ElasticExpansion, norm_tensors, norm_views
from deploynas.supernet.folding import Layer, squeeze_layers


class ElasticFusedInvertedResidual(ElasticExpansion):
    def __init__(self, parts: Sequence[Expansion]) -> None:
        super().__init__(parts)
        self.conv_exp = nn.Conv2d(self.parts[0].in_channels, self.mid, self.kernels[-1], bias=False)
        self.bn1 = ElasticNorm(len(self.kernels), self.mid)
        self.se = self._squeeze()
        self.conv_pwl, self.bn2 = self._narrow()

    @property
    def last_norm(self) -> ElasticNorm:
        return self.bn2

    @property
    def wide_norm(self) -> ElasticNorm:
        return self.bn1

    def enter(self, x: Tensor, mid: int) -> Tensor:
        return x

    def look(self, x: Tensor, row: int, mid: int) -> Tensor:
        kernel = self.of_size(self.conv_exp.weight[:mid], self.kernels[row])
        return self.activation(self.bn1(self.convolve(x, kernel), row))

    def own_views(self, config: int) -> Iterator[tuple[str, Tensor]]:
        part = self.parts[config]
        mid = part.mid_channels
        yield "conv_exp.weight", self.of_size(self.conv_exp.weight[:mid], part.kernel)
        yield from norm_views("bn1", self.bn1, self.kernel_row[config], mid)
        yield from norm_views("bn2", self.bn2, self.output_row[config], part.out_channels)

    def wide_tensors(self) -> Iterator[tuple[Tensor, int]]:
        yield self.conv_exp.weight, 0
        yield from norm_tensors(self.bn1)

    @staticmethod
    def layers(block: EdgeResidual) -> Iterator[Layer]:
        """The layers of timm's block, by the names that the graph gives them."""
        yield "expand", block.conv_exp, block.bn1
        yield from squeeze_layers(block.se)
        yield "project", block.conv_pwl, block.bn2
