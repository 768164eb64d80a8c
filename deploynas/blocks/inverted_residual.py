"""The inverted residual block: its configurations and its geometry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class BlockConfig:
    """One choice of a block: expansion ratio, depthwise kernel, squeeze-and-excitation ratio (0: none)."""

    ratio: float
    kernel: int
    se: float

    def __str__(self) -> str:
        return f"e{self.ratio:g}_k{self.kernel}" + (f"_se{self.se:g}" if self.se else "")

    def factors(self) -> dict[str, float]:
        """What the configuration is made of, by name: insights and shrinkage compare levels of these."""
        return {"expansion": self.ratio, "kernel": self.kernel, "se": self.se}


@dataclass(frozen=True)
class Block:
    """An inverted residual block with everything its latency depends on; equal blocks are measured once."""

    in_channels: int
    mid_channels: int
    out_channels: int
    kernel: int
    stride: int
    se_channels: int  # 0: no squeeze-and-excitation
    activation: str
    height: int  # of the input
    width: int

    @property
    def residual(self) -> bool:
        return self.stride == 1 and self.in_channels == self.out_channels
