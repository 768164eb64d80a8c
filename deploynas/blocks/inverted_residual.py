"""The inverted residual block (timm's `ir`): a pointwise expansion, a depthwise kernel, a pointwise projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from deploynas.blocks.expansion import Expansion, ExpansionConfig, ExpansionLists
from deploynas.blocks.operators import Operators, Tensor
from deploynas.blocks.part import Place


class InvertedResidualLists(ExpansionLists):
    kind: Literal["ir"] = "ir"

    def configs(self) -> tuple[InvertedResidualConfig, ...]:
        return self.combinations(InvertedResidualConfig)


@dataclass(frozen=True)
class InvertedResidualConfig(ExpansionConfig):
    code: ClassVar[str] = "ir"

    def part(self, place: Place) -> InvertedResidual:
        return InvertedResidual(**self.geometry(place))


@dataclass(frozen=True)
class InvertedResidual(Expansion):
    code: ClassVar[str] = "ir"

    def _widen(self, to: Operators, name: str, x: Tensor) -> Tensor:
        mid, activation = self.mid_channels, self.activation
        y = to.conv(f"{name}/expand", x, mid, activation=activation)
        return to.conv(f"{name}/depthwise", y, mid, self.kernel, self.stride, depthwise=True, activation=activation)
