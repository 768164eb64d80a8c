"""The fused inverted residual: timm's `er`, EfficientNetV2's. One full convolution widens, a pointwise one narrows.

Where channels are few it does more arithmetic than a depthwise kernel and is often faster all the same: one operator
instead of two, and one that keeps the hardware busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from deploynas.blocks.expansion import Expansion, ExpansionConfig, ExpansionLists
from deploynas.blocks.operators import Operators, Tensor
from deploynas.blocks.part import Place


class FusedInvertedResidualLists(ExpansionLists):
    kind: Literal["er"] = "er"

    def configs(self) -> tuple[FusedInvertedResidualConfig, ...]:
        return self.combinations(FusedInvertedResidualConfig)


@dataclass(frozen=True)
class FusedInvertedResidualConfig(ExpansionConfig):
    code: ClassVar[str] = "er"

    def __str__(self) -> str:
        return f"er_{super().__str__()}"

    def part(self, place: Place) -> FusedInvertedResidual:
        return FusedInvertedResidual(**self.geometry(place))


@dataclass(frozen=True)
class FusedInvertedResidual(Expansion):
    code: ClassVar[str] = "er"

    def _widen(self, to: Operators, name: str, x: Tensor) -> Tensor:
        return to.conv(f"{name}/expand", x, self.mid_channels, self.kernel, self.stride, activation=self.activation)

    def words(self) -> str:
        return f"fused {super().words()}"
