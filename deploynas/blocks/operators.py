"""The operators that parts of a network are written in.

A part describes its computation once, against `Operators`. Whoever listens makes of it what it needs: an ONNX graph in
fp32 or 8 bits, the names and shapes of the weights, or the costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Tensor:
    """A value in a network: its name and its shape for one image."""

    name: str
    channels: int
    height: int = 1
    width: int = 1

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


class Operators(Protocol):
    """Every method adds one operator, named as given, and returns its output."""

    def conv(
        self,
        name: str,
        x: Tensor,
        out_channels: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        depthwise: bool = False,
        activation: str | None = None,
        norm: bool = True,
        bias: bool = True,
    ) -> Tensor:
        """A convolution with padding kernel // 2. `norm`: trained with batch norm, which is folded into it; else it has
        a bias of its own, or not even that.
        """
        ...

    def linear(
        self, name: str, x: Tensor, outputs: int, *, activation: str | None = None, bias: bool = True
    ) -> Tensor: ...

    def relu(self, name: str, x: Tensor) -> Tensor:
        """On its own, where no convolution before it can take it in."""
        ...

    def norm(self, name: str, x: Tensor, *, activation: str | None = None) -> Tensor:
        """Batch norm that no convolution before it takes in: a factor and a bias for each channel."""
        ...

    def average_pool(self, name: str, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        """The mean over a window, without what the padding adds: (kernel - 1) // 2, which is none for a kernel of 2."""
        ...

    def global_pool(self, name: str, x: Tensor) -> Tensor: ...

    def flatten(self, name: str, x: Tensor) -> Tensor:
        """A vector, for the linear layers that follow."""
        ...

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor: ...

    def zeros(self, name: str, x: Tensor) -> Tensor:
        """As many zeros as x has numbers: what is left where nothing of x goes on."""
        ...

    def scale(self, name: str, x: Tensor, gate: Tensor) -> Tensor:
        """x times a gate per channel."""
        ...
