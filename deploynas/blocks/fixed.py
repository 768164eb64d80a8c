"""The parts that every network of a space shares: stem, first block, head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deploynas.blocks.geometry import timm_code
from deploynas.blocks.operators import Operators, Tensor


@dataclass(frozen=True)
class Stem:
    """3x3 convolution on the image."""

    code: ClassVar[str] = "stem"
    role: ClassVar[str] = "stem"
    in_channels: int
    out_channels: int
    stride: int
    activation: str | None
    height: int
    width: int

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        return to.conv(f"{name}/conv", x, self.out_channels, 3, self.stride, activation=self.activation)

    def words(self) -> str:
        return "conv 3×3"


@dataclass(frozen=True)
class DepthwiseSeparable:
    """Depthwise convolution with activation, then a linear pointwise one."""

    code: ClassVar[str] = "ds"
    role: ClassVar[str] = "first"
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    activation: str
    height: int
    width: int

    @property
    def residual(self) -> bool:
        return self.stride == 1 and self.in_channels == self.out_channels

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        channels, activation = self.in_channels, self.activation
        y = to.conv(f"{name}/depthwise", x, channels, self.kernel, self.stride, depthwise=True, activation=activation)
        y = to.conv(f"{name}/project", y, self.out_channels)
        return to.add(f"{name}/add", x, y) if self.residual else y

    def words(self) -> str:
        return f"depthwise {self.kernel}×{self.kernel}"

    def notation(self) -> str:
        return f"ds_r1_k{self.kernel}_s{self.stride}_e1_c{self.out_channels}_n{timm_code(self.activation)}"


@dataclass(frozen=True)
class Head:
    """1x1 convolution, global average pool, optional hidden layer, classifier."""

    code: ClassVar[str] = "head"
    role: ClassVar[str] = "head"
    in_channels: int
    features: int
    hidden: int | None
    classes: int
    activation: str
    height: int
    width: int
    hidden_bias: bool = True
    stride: ClassVar[int] = 1

    @property
    def out_channels(self) -> int:
        return self.classes

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        y = to.conv(f"{name}/features", x, self.features, activation=self.activation)
        y = to.flatten(f"{name}/flatten", to.global_pool(f"{name}/pool", y))
        if self.hidden:
            y = to.linear(f"{name}/hidden", y, self.hidden, activation=self.activation, bias=self.hidden_bias)
        return to.linear(f"{name}/classifier", y, self.classes)

    def words(self) -> str:
        return f"conv 1×1 to {self.features}" + (f", dense {self.hidden}" if self.hidden else "") + ", pool"

    def notation(self) -> str:
        return f"cn_r1_k1_s1_c{self.features}_n{timm_code(self.activation)}"
