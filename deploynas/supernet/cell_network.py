"""The one-shot network of a space of cells: every cell has its own weights, shared by all architectures.

An edge has the weights of each of its operations side by side. In one pass every image takes its own operation on every
edge: images of an operation are gathered, and what it makes of them is added to the node they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.blocks.cell_operations import MeanPool, Nothing, ReluConvNorm, Skip, operation
from deploynas.errors import InputError
from deploynas.space import Architecture, CellSpace, Space
from deploynas.space.cells import CellPlace, Edge
from deploynas.supernet.cell_alone import ConvNorm, ResidualReduction, initialise, of_cells, window_mean
from deploynas.supernet.elastic import ElasticNorm, pointwise, take
from deploynas.supernet.kernels import KernelRule
from deploynas.supernet.network import Supernet


class ElasticConvNorm(nn.Module):
    """The convolution of one edge and operation, for as many images as take it."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=False)
        self.bn = ElasticNorm(1, channels)

    def forward(self, rectified: Tensor) -> Tensor:
        point = self.conv.kernel_size == (1, 1)
        return self.bn(pointwise(rectified, self.conv.weight) if point else self.conv(rectified), 0)

    def views(self) -> Iterator[tuple[str, Tensor]]:
        """By the names of `ConvNorm`."""
        yield "conv.weight", self.conv.weight.data
        yield "bn.weight", self.bn.weight.data
        yield "bn.bias", self.bn.bias.data
        yield "bn.running_mean", self.bn.running_mean[0]
        yield "bn.running_var", self.bn.running_var[0]


class ElasticEdge(nn.Module):
    """All operations of an edge."""

    def __init__(self, edge: Edge, channels: int) -> None:
        super().__init__()
        self.operations = [operation(name) for name in edge.operations]
        self.convs = nn.ModuleDict()
        for own in self.operations:
            if isinstance(own, ReluConvNorm):
                self.convs[own.name] = ElasticConvNorm(channels, own.kernel)

    def made(self, o: int, source: NodeValue, images: Tensor | None = None) -> Tensor:
        """What operation o makes of the source, or of some of its images."""
        match self.operations[o]:
            case Skip():
                return source.of(images)
            case MeanPool(kernel=kernel):
                return window_mean(source.of(images), kernel)
            case ReluConvNorm(name=name):
                return self.convs[name](source.rectified_of(images))
            case own:
                raise InputError(f"`{own.name}` makes nothing of its input")


class NodeValue:
    """A node that edges read, and its ReLU once one of them wants it."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self._rectified: Tensor | None = None

    def of(self, images: Tensor | None) -> Tensor:
        return self.x if images is None else take(self.x, images)

    def rectified_of(self, images: Tensor | None) -> Tensor:
        if self._rectified is None:
            self._rectified = F.relu(self.x)
        return self._rectified if images is None else take(self._rectified, images)


class ElasticCell(nn.Module):
    """All architectures of a cell."""

    def __init__(self, space: CellSpace, place: CellPlace) -> None:
        super().__init__()
        self.space = space
        self.edges = nn.ModuleDict({edge.name: ElasticEdge(edge, place.channels) for edge in space.edges})

    def forward(self, x: Tensor, choices: Sequence[int | Tensor]) -> Tensor:
        """`choices`: of every edge, one operation for all images or one per image."""
        nodes = {0: NodeValue(x)}
        for target in range(1, self.space.nodes):
            # edges are in the order of their targets: the nodes that these read are complete
            into = [(e, choice) for e, choice in zip(self.space.edges, choices, strict=True) if e.target == target]
            total = torch.zeros_like(x).permute(0, 2, 3, 1).contiguous()
            for edge, choice in into:
                self._add(total, cast(ElasticEdge, self.edges[edge.name]), choice, nodes[edge.source])
            nodes[target] = NodeValue(total.permute(0, 3, 1, 2))
        return nodes[self.space.nodes - 1].x

    def mixed(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """`weights`: of every edge, those of its operations."""
        nodes = [NodeValue(x)]
        for target in range(1, self.space.nodes):
            total = torch.zeros_like(x)
            for edge, own in zip(self.space.edges, weights, strict=True):
                if edge.target == target:
                    elastic = cast(ElasticEdge, self.edges[edge.name])
                    for o, operation in enumerate(elastic.operations):
                        if not isinstance(operation, Nothing):
                            total = total + own[o] * elastic.made(o, nodes[edge.source])
            nodes.append(NodeValue(total))
        return nodes[-1].x

    @staticmethod
    def _add(total: Tensor, edge: ElasticEdge, choice: int | Tensor, source: NodeValue) -> None:
        """What the edge brings its node, added in place; channels are last."""
        for o, own in enumerate(edge.operations):
            if isinstance(own, Nothing):
                continue
            if isinstance(choice, int):
                if choice == o:
                    total += edge.made(o, source).permute(0, 2, 3, 1)
                continue
            images = (choice == o).nonzero().flatten().to(total.device)
            if len(images):
                y = edge.made(o, source, images).permute(0, 2, 3, 1)
                total.index_add_(0, images, y.to(total.dtype))


class CellSupernet(Supernet):
    def __init__(self, space: Space, kernel_rule: KernelRule = "centre") -> None:
        super().__init__(space, kernel_rule)
        cells = of_cells(space.heaviest())
        stem, head = cells.stem, cells.head
        self.stem = ConvNorm(stem.in_channels, stem.out_channels, 3, stem.stride)
        self.stages = nn.ModuleList()
        for s, places in enumerate(cells.stage_places):
            stage = nn.ModuleDict()
            if s:
                stage["reduction"] = ResidualReduction(cells.reductions[s - 1][1])
            stage["cells"] = nn.ModuleList(ElasticCell(cells, place) for place in places)
            self.stages.append(stage)
        self.norm = nn.BatchNorm2d(head.in_channels)
        self.classifier = nn.Linear(head.in_channels, head.classes)
        initialise(self)

    def sort_channels(self) -> None:
        """All operations use all channels."""

    def _logits(self, images: Tensor, choices: Sequence[Sequence[int | Tensor]]) -> Tensor:
        return self._through(images, lambda cell, x: cell(x, choices[0]))

    def mixed(self, images: Tensor, weights: Tensor) -> Tensor:
        """Every edge is the sum of its operations."""
        decisions = self.space.decisions
        edges = [weights[decisions.slices[decisions.column(0, e)]] for e in range(len(decisions.groups[0].choices))]
        return self._through(images, lambda cell, x: cell.mixed(x, edges))

    def _through(self, images: Tensor, of_cell: Callable[[ElasticCell, Tensor], Tensor]) -> Tensor:
        """Logits, from what every cell makes of its input."""
        x = self.stem(images)
        for stage in self.stages:
            modules = cast(nn.ModuleDict, stage)
            if "reduction" in modules:
                x = modules["reduction"](x)
            for cell in cast(nn.ModuleList, modules["cells"]):
                x = of_cell(cast(ElasticCell, cell), x)
        return self.classifier(F.relu(self.norm(x)).mean((2, 3)))

    def views(self, architecture: Architecture) -> Iterator[tuple[str, Tensor]]:
        """By the names of `CellNetwork`."""
        space = of_cells(architecture)
        for name, tensor in self.state_dict(keep_vars=True).items():
            if ".cells." not in name and not name.endswith("num_batches_tracked"):
                yield name, tensor.data
        live = space.cell(architecture, space.stage_places[0][0]).live()
        for s, stage in enumerate(self.stages):
            for k, cell in enumerate(cast(nn.ModuleList, cast(nn.ModuleDict, stage)["cells"])):
                for edge in live:
                    own = cast(ElasticEdge, cast(ElasticCell, cell).edges[edge.name])
                    if edge.operation in own.convs:
                        for name, view in cast(ElasticConvNorm, own.convs[edge.operation]).views():
                            yield f"stages.{s}.cells.{k}.edges.{edge.name}.{name}", view
