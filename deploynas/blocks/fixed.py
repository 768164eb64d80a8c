"""The parts that every network of a space shares: stem, first block, head."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stem:
    """3x3 convolution on the image."""

    in_channels: int
    out_channels: int
    stride: int
    activation: str
    height: int
    width: int


@dataclass(frozen=True)
class Separable:
    """Depthwise convolution with activation, then a linear pointwise one."""

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


@dataclass(frozen=True)
class Head:
    """1x1 convolution, global average pool, optional hidden layer, classifier."""

    in_channels: int
    features: int
    hidden: int | None
    classes: int
    activation: str
    height: int
    width: int
