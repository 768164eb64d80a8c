"""A space of cells: one cell is searched, and repeated all over the network (NAS-Bench-201, Dong and Yang 2020).

A stem, then stages of equal cells, then a head. Every stage but the first begins with a residual block that halves the
image. In a cell every edge picks an operation; all cells pick the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pydantic

from deploynas.blocks import Part, Stem
from deploynas.blocks.cell import Cell, CellEdge, EdgeOperation, NormHead, Reduction, edge_name
from deploynas.blocks.cell_operations import Nothing, operation, operation_weight
from deploynas.blocks.geometry import strided
from deploynas.errors import InputError
from deploynas.files import mistakes_of, read_yaml
from deploynas.space.architecture import Architecture
from deploynas.space.cell_notation import from_text, to_text
from deploynas.space.cell_schema import CellSpaceFile, CellSpaceRecord
from deploynas.space.decisions import Choice, Decisions, Group, Option
from deploynas.space.space import Space

OPERATION = "operation"  # the factor by which options of an edge differ


@dataclass(frozen=True)
class CellStage:
    channels: int
    cells: int


@dataclass(frozen=True)
class Edge:
    """From one node to a later one, and what it may do."""

    source: int
    target: int
    operations: tuple[str, ...]

    @property
    def name(self) -> str:
        return edge_name(self.source, self.target)


@dataclass(frozen=True)
class CellPlace:
    """Where a cell sits: all that its operations do not decide."""

    name: str  # `stage2/cell1`
    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class CellSpace(Space):
    """Equal cells between a stem and a head."""

    stem_stride: int
    stages: tuple[CellStage, ...]
    nodes: int
    edges: tuple[Edge, ...]  # by target, then by source

    @classmethod
    def from_yaml(cls, path: Path) -> CellSpace:
        spec = read_yaml(path, CellSpaceFile)
        return cls(
            name=spec.name,
            in_channels=spec.input.channels,
            height=spec.input.height,
            width=spec.input.width,
            classes=spec.classes,
            stem_stride=spec.stem.stride,
            stages=tuple(CellStage(stage.channels, stage.cells) for stage in spec.stages),
            nodes=spec.nodes,
            edges=tuple(Edge(*edge) for edge in spec.listed_edges()),
        )

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "cell",
            "name": self.name,
            "in_channels": self.in_channels,
            "height": self.height,
            "width": self.width,
            "classes": self.classes,
            "stem_stride": self.stem_stride,
            "stages": [{"channels": stage.channels, "cells": stage.cells} for stage in self.stages],
            "nodes": self.nodes,
            "edges": [
                {"source": edge.source, "target": edge.target, "operations": list(edge.operations)}
                for edge in self.edges
            ],
        }

    @classmethod
    def from_record(cls, data: Mapping[str, Any]) -> CellSpace:
        try:
            record = CellSpaceRecord.model_validate(data)
        except pydantic.ValidationError as error:
            raise InputError(f"not a description of a search space: {'; '.join(mistakes_of(error))}") from error
        stages = tuple(CellStage(stage.channels, stage.cells) for stage in record.stages)
        edges = tuple(Edge(edge.source, edge.target, tuple(edge.operations)) for edge in record.edges)
        return cls(**{**vars(record), "stages": stages, "edges": edges})

    # -- what it is built of --------------------------------------------------------------------

    @cached_property
    def stem(self) -> Stem:
        return Stem(self.in_channels, self.stages[0].channels, self.stem_stride, None, self.height, self.width)

    @cached_property
    def head(self) -> NormHead:
        last = self.stage_places[-1][-1]
        return NormHead(last.channels, self.classes, last.height, last.width)

    @cached_property
    def stage_places(self) -> tuple[tuple[CellPlace, ...], ...]:
        """[stage][cell]."""
        height, width = strided(self.height, self.stem_stride), strided(self.width, self.stem_stride)
        found = []
        for s, stage in enumerate(self.stages):
            if s:
                height, width = strided(height, 2), strided(width, 2)
            found.append(
                tuple(CellPlace(f"stage{s + 1}/cell{k + 1}", stage.channels, height, width) for k in range(stage.cells))
            )
        return tuple(found)

    @cached_property
    def reductions(self) -> tuple[tuple[str, Reduction], ...]:
        """Before the second stage and every later one."""
        ends = [places[-1] for places in self.stage_places]
        return tuple(
            (f"stage{s + 2}/reduction", Reduction(before.channels, after.channels, before.height, before.width))
            for s, (before, after) in enumerate(itertools.pairwise(ends))
        )

    def fixed_parts(self) -> list[tuple[str, Part]]:
        return [("stem", self.stem), *self.reductions, ("head", self.head)]

    def option_parts(self, g: int, i: int, o: int) -> tuple[Part, ...]:
        """The operation in every cell, with the sum that it is part of."""
        return self._edge_parts[i][o]

    @cached_property
    def _edge_parts(self) -> tuple[tuple[tuple[Part, ...], ...], ...]:
        def parts(name: str) -> tuple[Part, ...]:
            if isinstance(operation(name), Nothing):
                return ()
            places = [place for stage in self.stage_places for place in stage]
            return tuple(EdgeOperation(name, place.channels, place.height, place.width) for place in places)

        return tuple(tuple(parts(name) for name in edge.operations) for edge in self.edges)

    def joint_parts(self) -> list[Part]:
        heaviest = self.heaviest()
        return [self.cell(heaviest, stage[0]) for stage in self.stage_places]

    def cell(self, architecture: Architecture, place: CellPlace) -> Cell:
        """The cell of an architecture at a place."""
        return Cell(place.channels, self.nodes, self.chosen(architecture), place.height, place.width)

    def chosen(self, architecture: Architecture) -> tuple[CellEdge, ...]:
        """What every edge does."""
        self.require_member(architecture)
        (chosen,) = architecture.choices
        return tuple(
            CellEdge(edge.source, edge.target, edge.operations[o]) for edge, o in zip(self.edges, chosen, strict=True)
        )

    def connected(self, architecture: Architecture) -> bool:
        """Whether the image has a way to the output; the logits are the same for all images where it has none."""
        return self.cell(architecture, self.stage_places[0][0]).connected()

    def parts(self, architecture: Architecture) -> list[tuple[str, Part]]:
        parts: list[tuple[str, Part]] = [("stem", self.stem)]
        for s, stage in enumerate(self.stage_places):
            if s:
                parts.append(self.reductions[s - 1])
            parts += [(place.name, self.cell(architecture, place)) for place in stage]
        return [*parts, ("head", self.head)]

    # -- architectures --------------------------------------------------------------------------

    def smallest(self) -> Architecture:
        lightest = [min(edge.operations, key=operation_weight) for edge in self.edges]
        return self._with_operations(lightest)

    def heaviest(self) -> Architecture:
        heaviest = [max(edge.operations, key=operation_weight) for edge in self.edges]
        return self._with_operations(heaviest)

    def _with_operations(self, names: Sequence[str]) -> Architecture:
        return self.architecture([[e.operations.index(name) for e, name in zip(self.edges, names, strict=True)]])

    def text(self, architecture: Architecture) -> str:
        """NAS-Bench-201's notation."""
        return to_text(self.edges, architecture.choices[0])

    def from_text(self, text: str) -> Architecture:
        return self.architecture([from_text(text, self.edges, self.name)])

    # -- decisions ------------------------------------------------------------------------------

    @cached_property
    def decisions(self) -> Decisions:
        """One group, whose choices are the edges."""
        names = list(dict.fromkeys(name for edge in self.edges for name in edge.operations))
        choices = tuple(
            Choice(edge.name, tuple(Option(name, ((OPERATION, float(names.index(name))),)) for name in edge.operations))
            for edge in self.edges
        )
        return Decisions((Group("cell", (len(self.edges),), choices),), "cell", "edge")
