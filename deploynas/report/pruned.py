"""What pruning came to, schema `deploynas/pruned`: the network before and after, and other ways to the same latency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from deploynas.device import RecordedDevice
from deploynas.files import parse_json, write_json
from deploynas.inside_path import InsidePath
from deploynas.outcome import Outcome
from deploynas.provenance import Origin
from deploynas.recorded import Count, NotNegative, Positive
from deploynas.timing import Interval, Timing

Role = Literal["original", "pruned", "control"]


class Margin(BaseModel):
    """By how much the pruned network is right more often, on the same images."""

    part: Literal["test", "validation"]
    images: int
    difference: float
    standard_error: float


class PrunedNetwork(BaseModel):
    role: Role
    method: str  # that chose the widths; `original`: nobody
    file: InsidePath  # the ONNX file that was timed, relative to this one
    widths: list[int]  # expansion channels of every block; hidden units and head dimension of a transformer's
    params: Count
    macs: Count
    predicted_ms: NotNegative | None  # by the table of widths; None: there is none
    before_finetuning: float | None  # validation accuracy; None: the original
    validation_accuracy: float
    test_accuracy: float | None
    timing: Timing
    faster: Positive | None  # than the original, timed interleaved: 1.5 needs two thirds of its time
    faster_interval: Interval | None
    margin: Margin | None = None  # of the pruned network over this one


class PrunedFile(BaseModel):
    schema_: Literal["deploynas/pruned"] = Field(default="deploynas/pruned", alias="schema")
    schema_version: int = 1
    network: str
    source: Origin | None
    data: str
    device: RecordedDevice
    device_hash: str
    method: str
    ratio: float | None  # of the original's latency that was to go
    budget_ms: Positive
    outcome: Outcome
    # the original first, then the pruned one, then the controls
    networks: Annotated[list[PrunedNetwork], Field(min_length=2)]
    warnings: list[str]
    provenance: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> PrunedFile:
        return parse_json(path, cls)

    def save(self, path: Path) -> None:
        write_json(path, self.model_dump(by_alias=True, mode="json"))

    @property
    def original(self) -> PrunedNetwork:
        return self.networks[0]

    @property
    def pruned(self) -> PrunedNetwork:
        return self.networks[1]

    @property
    def controls(self) -> list[PrunedNetwork]:
        return self.networks[2:]
