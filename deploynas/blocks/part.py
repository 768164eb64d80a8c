"""What a part of a network is to everyone else: shapes, operators and words. Equal parts are measured once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from deploynas.blocks.operators import Operators, Tensor


class Part(Protocol):
    """A piece of a network with everything its latency depends on; hashable."""

    @property
    def in_channels(self) -> int: ...
    @property
    def height(self) -> int:
        """Of the input."""
        ...

    @property
    def width(self) -> int: ...
    @property
    def out_channels(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def code(self) -> str:
        """The kind of block in timm's notation; a name of ours for what timm's notation does not have."""
        ...

    @property
    def role(self) -> str:
        """`stem`, `first`, `block` or `head`."""
        ...

    def __hash__(self) -> int: ...

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        """The computation, operator by operator; `name` begins the names of all of them."""
        ...

    def words(self) -> str:
        """Its configuration, for people."""
        ...


@dataclass(frozen=True)
class Place:
    """Where a searched block sits: everything about it that its configuration does not decide."""

    in_channels: int
    out_channels: int
    stride: int
    activation: str
    height: int  # of the input
    width: int
