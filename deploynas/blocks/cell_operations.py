"""What an edge of a cell may do, by the names of NAS-Bench-201: `none`, `skip_connect`, `nor_conv_3x3`, `avg_pool_3x3`.

Channels and image size stay as they are, whatever an edge does, so that the edges into a node can be added up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deploynas.blocks.operators import Operators, Tensor
from deploynas.errors import InputError

_SIZED = re.compile(r"(nor_conv|avg_pool)_([1-9])x\2$")


@dataclass(frozen=True)
class Nothing:
    """The edge is not there."""

    name: str = "none"

    def words(self) -> str:
        return "nothing"


@dataclass(frozen=True)
class Skip:
    """The node itself."""

    name: str = "skip_connect"

    def words(self) -> str:
        return "skip"


@dataclass(frozen=True)
class MeanPool:
    """The mean over a window around every pixel, without what the padding adds."""

    kernel: int

    @property
    def name(self) -> str:
        return f"avg_pool_{self.kernel}x{self.kernel}"

    def words(self) -> str:
        return f"mean of {self.kernel}×{self.kernel}"


@dataclass(frozen=True)
class ReluConvNorm:
    """ReLU, convolution, batch norm."""

    kernel: int

    @property
    def name(self) -> str:
        return f"nor_conv_{self.kernel}x{self.kernel}"

    def words(self) -> str:
        return f"conv {self.kernel}×{self.kernel}"


Operation = Nothing | Skip | MeanPool | ReluConvNorm
LIGHTEST_FIRST: tuple[type, ...] = (Nothing, Skip, MeanPool, ReluConvNorm)
KNOWN = "`none`, `skip_connect`, `nor_conv_3x3`, `avg_pool_3x3`, or one of the latter with another odd size up to 9x9"


def operation(name: str) -> Operation:
    """By its name."""
    if name == Nothing().name:
        return Nothing()
    if name == Skip().name:
        return Skip()
    sized = _SIZED.match(name)
    if sized and int(sized[2]) % 2:
        kernel = int(sized[2])
        if sized[1] == "nor_conv":
            return ReluConvNorm(kernel)
        if kernel > 1:  # the mean of one pixel is the pixel
            return MeanPool(kernel)
    raise InputError(f"no operation `{name}` for an edge", hint=f"one of {KNOWN}")


def operation_weight(name: str) -> tuple[int, int]:
    """Orders operations from light to heavy."""
    own = operation(name)
    return LIGHTEST_FIRST.index(type(own)), getattr(own, "kernel", 0)


def write_operation(own: Operation, to: Operators, name: str, x: Tensor, rectified: Tensor | None) -> Tensor:
    """What the edge makes of x; `rectified` is its ReLU, which a convolution reads instead."""
    match own:
        case Skip():
            return x
        case MeanPool(kernel=kernel):
            return to.average_pool(f"{name}/pool", x, kernel)
        case ReluConvNorm(kernel=kernel):
            assert rectified is not None
            return to.conv(f"{name}/conv", rectified, x.channels, kernel)
        case _:
            raise InputError(f"`{own.name}` makes nothing of its input")
