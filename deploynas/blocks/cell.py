"""A cell: nodes, each the sum of what the edges into it make of earlier nodes; and one edge of it, to be timed alone.

Node 0 is the input, the last node the output. An edge whose operation is `none` adds nothing. What cannot reach the
output is not written; where nothing reaches a node it is zeros, and operations on it are written like any others, so
that the graph computes what the definition says: a convolution makes its bias of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deploynas.blocks.cell_operations import Nothing, ReluConvNorm, operation, write_operation
from deploynas.blocks.operators import Operators, Tensor


def edge_name(source: int, target: int) -> str:
    return f"edge{source}-{target}"


@dataclass(frozen=True)
class CellEdge:
    """An edge and its operation, by name."""

    source: int
    target: int
    operation: str

    @property
    def name(self) -> str:
        return edge_name(self.source, self.target)


@dataclass(frozen=True)
class Cell:
    """All edges of a cell, with what each of them does."""

    code: ClassVar[str] = "cell"
    role: ClassVar[str] = "cell"
    stride: ClassVar[int] = 1
    channels: int
    nodes: int
    edges: tuple[CellEdge, ...]  # by target, then by source
    height: int
    width: int

    @property
    def in_channels(self) -> int:
        return self.channels

    @property
    def out_channels(self) -> int:
        return self.channels

    def present(self) -> tuple[CellEdge, ...]:
        """The edges that do something."""
        return tuple(edge for edge in self.edges if not isinstance(operation(edge.operation), Nothing))

    def live(self) -> tuple[CellEdge, ...]:
        """Those of them whose result reaches the output."""
        reaching = {self.nodes - 1}
        for edge in sorted(self.present(), key=lambda edge: -edge.target):
            if edge.target in reaching:
                reaching.add(edge.source)
        return tuple(edge for edge in self.present() if edge.target in reaching)

    def connected(self) -> bool:
        """Whether what comes in has a way to the output."""
        reached = {0}
        for edge in self.live():
            if edge.source in reached:
                reached.add(edge.target)
        return self.nodes - 1 in reached

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        nodes: dict[int, Tensor] = {0: x}
        rectified: dict[str, Tensor] = {}
        for edge in self.live():
            if edge.source not in nodes:
                nodes[edge.source] = to.zeros(f"{name}/node{edge.source}/zeros", x)
            source, own = nodes[edge.source], operation(edge.operation)
            if isinstance(own, ReluConvNorm) and source.name not in rectified:
                rectified[source.name] = to.relu(f"{name}/node{edge.source}/relu", source)
            y = write_operation(own, to, f"{name}/{edge.name}", source, rectified.get(source.name))
            before = nodes.get(edge.target)
            nodes[edge.target] = y if before is None else to.add(f"{name}/{edge.name}/add", y, before)
        last = self.nodes - 1
        return nodes[last] if last in nodes else to.zeros(f"{name}/node{last}/zeros", x)

    def words(self) -> str:
        return ", ".join(f"{e.source}→{e.target} {operation(e.operation).words()}" for e in self.present()) or "nothing"


@dataclass(frozen=True)
class EdgeOperation:
    """What one edge adds to a cell: its operation, and the sum with what other edges bring to the node."""

    code: ClassVar[str] = "edge"
    role: ClassVar[str] = "cell"
    stride: ClassVar[int] = 1
    operation: str
    channels: int
    height: int
    width: int

    @property
    def in_channels(self) -> int:
        return self.channels

    @property
    def out_channels(self) -> int:
        return self.channels

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        own = operation(self.operation)
        rectified = to.relu(f"{name}/relu", x) if isinstance(own, ReluConvNorm) else None
        return to.add(f"{name}/add", write_operation(own, to, name, x, rectified), x)

    def words(self) -> str:
        return operation(self.operation).words()


@dataclass(frozen=True)
class Reduction:
    """Between stages of cells: a residual block that halves the image; its shortcut is a mean and a convolution."""

    code: ClassVar[str] = "reduction"
    role: ClassVar[str] = "reduction"
    stride: ClassVar[int] = 2
    in_channels: int
    out_channels: int
    height: int
    width: int

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        y = to.conv(f"{name}/first", to.relu(f"{name}/relu", x), self.out_channels, 3, 2, activation="relu")
        y = to.conv(f"{name}/second", y, self.out_channels, 3)
        shortcut = to.average_pool(f"{name}/shortcut/pool", x, 2, 2)
        shortcut = to.conv(f"{name}/shortcut", shortcut, self.out_channels, norm=False, bias=False)
        return to.add(f"{name}/add", shortcut, y)

    def words(self) -> str:
        return "residual block, half the size"


@dataclass(frozen=True)
class NormHead:
    """Batch norm and ReLU, global average pool, classifier."""

    code: ClassVar[str] = "norm_head"
    role: ClassVar[str] = "head"
    stride: ClassVar[int] = 1
    in_channels: int
    classes: int
    height: int
    width: int

    @property
    def out_channels(self) -> int:
        return self.classes

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        y = to.norm(f"{name}/norm", x, activation="relu")
        y = to.flatten(f"{name}/flatten", to.global_pool(f"{name}/pool", y))
        return to.linear(f"{name}/classifier", y, self.classes)

    def words(self) -> str:
        return "pool, classifier"
