"""A network of cells on its own, with torch: one architecture, only the edges whose result reaches the output.

Which of its layers become which operators of the graph is said here too (`layers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.blocks import Part, Stem
from deploynas.blocks.cell import Cell, NormHead, Reduction
from deploynas.blocks.cell_operations import MeanPool, Operation, ReluConvNorm, Skip, operation
from deploynas.errors import InputError
from deploynas.space import Architecture, CellSpace
from deploynas.supernet.folding import Layer


def of_cells(architecture: Architecture) -> CellSpace:
    space = architecture.space
    if not isinstance(space, CellSpace):
        raise InputError(f"space `{space.name}` is not made of cells")
    return space


class ConvNorm(nn.Module):
    """A convolution and its batch norm; what is before and after them stands where they are used."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x))


class ResidualReduction(nn.Module):
    """`Reduction` with torch."""

    def __init__(self, part: Reduction) -> None:
        super().__init__()
        self.first = ConvNorm(part.in_channels, part.out_channels, 3, 2)
        self.second = ConvNorm(part.out_channels, part.out_channels, 3)
        self.shortcut = nn.Conv2d(part.in_channels, part.out_channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(F.relu(x))))
        return y + self.shortcut(F.avg_pool2d(x, 2))


def window_mean(x: Tensor, kernel: int) -> Tensor:
    return F.avg_pool2d(x, kernel, 1, kernel // 2, count_include_pad=False)


def initialise(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 0.01)
            nn.init.zeros_(module.bias)


class CellAlone(nn.Module):
    """One cell: modules for its convolutions, by the names of their edges."""

    def __init__(self, part: Cell) -> None:
        super().__init__()
        self.part = part
        self.edges = nn.ModuleDict()
        for edge in part.live():
            own = operation(edge.operation)
            if isinstance(own, ReluConvNorm):
                self.edges[edge.name] = ConvNorm(part.channels, part.channels, own.kernel)

    def forward(self, x: Tensor) -> Tensor:
        nodes: dict[int, Tensor] = {0: x}
        for edge in self.part.live():
            source = nodes[edge.source] if edge.source in nodes else torch.zeros_like(x)
            y = self._made(edge.name, operation(edge.operation), source)
            nodes[edge.target] = nodes[edge.target] + y if edge.target in nodes else y
        last = self.part.nodes - 1
        return nodes[last] if last in nodes else torch.zeros_like(x)

    def _made(self, name: str, own: Operation, x: Tensor) -> Tensor:
        match own:
            case Skip():
                return x
            case MeanPool(kernel=kernel):
                return window_mean(x, kernel)
            case ReluConvNorm():
                return self.edges[name](F.relu(x))
            case _:
                raise InputError(f"`{own.name}` makes nothing of its input")


class CellNetwork(nn.Module):
    """A whole network."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        space = of_cells(architecture)
        stem, head = space.stem, space.head
        self.stem = ConvNorm(stem.in_channels, stem.out_channels, 3, stem.stride)
        self.stages = nn.ModuleList()
        for s, places in enumerate(space.stage_places):
            stage = nn.ModuleDict()
            if s:
                stage["reduction"] = ResidualReduction(space.reductions[s - 1][1])
            stage["cells"] = nn.Sequential(*(CellAlone(space.cell(architecture, place)) for place in places))
            self.stages.append(stage)
        self.norm = nn.BatchNorm2d(head.in_channels)
        self.classifier = nn.Linear(head.in_channels, head.classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for stage in self.stages:
            for module in cast(nn.ModuleDict, stage).values():
                x = module(x)
        return self.classifier(F.relu(self.norm(x)).mean((2, 3)))

    def layers(self, parts: Sequence[tuple[str, Part]]) -> Iterator[Layer]:
        """In network order, by the names that the graph of these parts gives them."""
        modules = [module for stage in self.stages for module in self._of_stage(cast(nn.ModuleDict, stage))]
        inside = iter(modules)
        for name, part in parts:
            match part:
                case Stem():
                    yield f"{name}/conv", self.stem.conv, self.stem.bn
                case NormHead():
                    yield f"{name}/norm", None, self.norm
                    yield f"{name}/classifier", self.classifier, None
                case Reduction():
                    module = next(inside, None)
                    if not isinstance(module, ResidualReduction):
                        return
                    yield f"{name}/first", module.first.conv, module.first.bn
                    yield f"{name}/second", module.second.conv, module.second.bn
                    yield f"{name}/shortcut", module.shortcut, None
                case Cell():
                    module = next(inside, None)
                    if not isinstance(module, CellAlone):
                        return
                    for edge, own in module.edges.items():
                        yield f"{name}/{edge}/conv", cast(ConvNorm, own).conv, cast(ConvNorm, own).bn
                case _:
                    raise InputError(f"a network of cells has no part `{part.code}`")

    @staticmethod
    def _of_stage(stage: nn.ModuleDict) -> Iterator[nn.Module]:
        if "reduction" in stage:
            yield stage["reduction"]
        yield from cast(nn.Sequential, stage["cells"])
