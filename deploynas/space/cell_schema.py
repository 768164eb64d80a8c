"""What a space file of cells may say: the YAML form of `CellSpace`, with every rule it must obey.

And its record: the same space as generated files embed it, whose unknown keys are ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from deploynas.blocks.cell_operations import operation
from deploynas.errors import InputError
from deploynas.space.schema import Size, Stride


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _known(name: str) -> str:
    try:
        operation(name)
    except InputError as error:
        raise ValueError(f"be {error.hint}") from error
    return name


def _distinct(values: list[str]) -> list[str]:
    if len(set(values)) != len(values):
        raise ValueError("not repeat an operation")
    return values


Channels = Annotated[int, Field(ge=1, le=8192)]
Operations = Annotated[
    list[Annotated[str, AfterValidator(_known)]], Field(min_length=1, max_length=64), AfterValidator(_distinct)
]


class CellInputFile(_Strict):
    channels: int = Field(ge=1, le=64)
    height: Size
    width: Size


class CellStemFile(_Strict):
    stride: Stride = 1


class CellStageFile(_Strict):
    channels: Channels
    cells: int = Field(ge=1, le=64)


class EdgeFile(_Strict):
    """From one node to a later one; what it may do, where that is not what the space lists."""

    source: int = Field(ge=0, le=15)
    target: int = Field(ge=1, le=15)
    operations: Operations | None = None


class CellSpaceFile(_Strict):
    schema_: Literal["deploynas/space"] = Field(default="deploynas/space", alias="schema")
    schema_version: Literal[1] = 1
    kind: Literal["cell"]
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    input: CellInputFile
    classes: int = Field(ge=1, le=1_000_000)
    stem: CellStemFile = CellStemFile()
    stages: list[CellStageFile] = Field(min_length=1, max_length=16)
    nodes: int = Field(ge=2, le=16)
    operations: Operations
    edges: Annotated[list[EdgeFile], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _halves(self) -> CellSpaceFile:
        """Every stage but the first halves the image, and its two ways must come out alike."""
        halved = 2 ** (len(self.stages) - 1)
        for name in ("height", "width"):
            size = -(-getattr(self.input, name) // self.stem.stride)
            if size % halved:
                raise ValueError(f"have a `{name}` that can be halved {len(self.stages) - 1} times, {size} cannot")
        return self

    @model_validator(mode="after")
    def _edges_of_a_cell(self) -> CellSpaceFile:
        places = [(edge.source, edge.target) for edge in self.edges or []]
        if any(not source < target < self.nodes for source, target in places):
            raise ValueError(f"have `edges` from a node to a later one, of nodes 0 to {self.nodes - 1}")
        if len(set(places)) < len(places):
            raise ValueError("not have the same edge twice")
        entered = {target for _, target in places}
        if places and (missing := [str(n) for n in range(1, self.nodes) if n not in entered]):
            raise ValueError(f"have an edge into every node but the first, not only into others than {missing[0]}")
        return self

    def listed_edges(self) -> list[tuple[int, int, tuple[str, ...]]]:
        """Source, target and operations, by target and then by source; every edge there can be if none is listed."""
        if self.edges is None:
            return [(i, j, tuple(self.operations)) for j in range(1, self.nodes) for i in range(j)]
        found = [(edge.source, edge.target, tuple(edge.operations or self.operations)) for edge in self.edges]
        return sorted(found, key=lambda edge: (edge[1], edge[0]))


class EdgeRecord(BaseModel):
    source: int
    target: int
    operations: list[str]


class CellStageRecord(BaseModel):
    channels: int
    cells: int


class CellSpaceRecord(BaseModel):
    name: str
    in_channels: int
    height: int
    width: int
    classes: int
    stem_stride: int
    stages: list[CellStageRecord]
    nodes: int
    edges: list[EdgeRecord]
