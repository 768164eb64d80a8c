"""The file that a search leaves behind, schema `deploynas/search-result`: what fine-tuning and export start
from.

It embeds the space and names by hash the estimator and the tables that it came from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from deploynas.files import parse_json, write_json
from deploynas.search.frontier import Frontier
from deploynas.search.problem import UNITS
from deploynas.search.result import SearchResult
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Unit


class LimitRecord(BaseModel):
    name: str
    predicted: float
    budget: float
    relative_error: float | None
    unit: Unit

    @model_validator(mode="before")
    @classmethod
    def _named_by_resource(cls, data: object) -> object:
        """Files of before have no unit: there a limit was on a resource, and went by its name, or on a latency."""
        if isinstance(data, dict) and "unit" not in data:
            return {**data, "unit": UNITS.get(str(data.get("name")).split(" (")[0], "ms")}
        return data


def _scored(data: object) -> object:
    """Files of before have an accuracy and no score: they were the same."""
    if isinstance(data, dict) and "score" not in data and "accuracy" in data:
        return {**data, "score": data["accuracy"]}
    return data


class NetworkRecord(BaseModel):
    """A network that was found. `choices[s][b]` are indices of configurations in the embedded space."""

    architecture: str
    choices: list[list[int]]
    score: float  # predicted: what was maximised
    accuracy: float | None  # the score, if it is an accuracy (0..1); None: it only ranks
    accuracy_se: float | None
    expected_accuracy: float | None = None  # what networks with such a prediction measured, one-shot
    measured_accuracy: float | None = None  # one-shot, batch norm recalibrated, by `--rerank`
    measured_accuracy_se: float | None = None
    params: int
    macs: int
    size_bytes: int
    peak_memory_bytes: int
    limits: list[LimitRecord]
    solver: str
    optimal: bool
    gap: float | None  # of the score

    _before = model_validator(mode="before")(_scored)


class SharingRecord(BaseModel):
    """What one device loses by taking the shared network."""

    limit: str
    own: NetworkRecord
    loss: float | None  # of score; None: no network is within the limits of all devices


class FrontierRecord(BaseModel):
    architecture: str
    choices: list[list[int]]
    score: float
    accuracy: float | None  # the score, if it is an accuracy (0..1); None: it only ranks
    expected_accuracy: float | None = None
    latency_ms: float

    _before = model_validator(mode="before")(_scored)


class InputRecord(BaseModel):
    path: str
    sha256: str


class SearchFile(BaseModel):
    schema_: Literal["deploynas/search-result"] = Field(default="deploynas/search-result", alias="schema")
    schema_version: int = 1
    space: dict[str, Any]
    space_hash: str
    networks: list[NetworkRecord] = []  # best first, each within all limits
    each: list[SharingRecord] = []  # the best network of every device, when there are several
    frontier: list[FrontierRecord] = []
    estimator: InputRecord
    estimator_validation: dict[str, Any] | None = None
    tables: list[InputRecord] = []
    provenance: dict[str, Any] = {}

    def the_space(self) -> Space:
        return Space.from_description(self.space)

    def architectures(self) -> list[Architecture]:
        """The networks, best first."""
        space = self.the_space()
        return [space.architecture(network.choices) for network in self.networks]

    @classmethod
    def load(cls, path: str | Path) -> SearchFile:
        file = parse_json(Path(path), cls)
        file.the_space().require_hash(file.space_hash, f"{path}: its networks")
        return file

    def save(self, path: str | Path) -> None:
        write_json(Path(path), self.model_dump(by_alias=True))


def network_record(result: SearchResult) -> NetworkRecord:
    return NetworkRecord(
        architecture=str(result.architecture),
        choices=_choices(result.architecture),
        score=result.score,
        accuracy=result.accuracy,
        accuracy_se=result.accuracy_se,
        **vars(result.costs),
        limits=[LimitRecord(**vars(use)) for use in result.limits],
        solver=result.solver,
        optimal=result.optimal,
        gap=result.gap,
    )


def sharing_records(each: Sequence[SearchResult], shared: SearchResult | None) -> list[SharingRecord]:
    return [
        SharingRecord(
            limit=next(use.name for use in own.limits if use.unit == "ms"),
            own=network_record(own),
            loss=own.score - shared.score if shared else None,
        )
        for own in each
    ]


def frontier_records(points: Frontier) -> list[FrontierRecord]:
    return [
        FrontierRecord(
            architecture=str(point.architecture),
            choices=_choices(point.architecture),
            score=point.score,
            accuracy=point.accuracy,
            latency_ms=point.latency_ms,
        )
        for point in points
    ]


def input_record(path: Path) -> InputRecord:
    return InputRecord(path=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _choices(architecture: Architecture) -> list[list[int]]:
    return [list(choice) for choice in architecture.choices]
