"""The latency table: what every block configuration costs on one device, and how far to trust it (eq. 5).

A table is additive: the fixed parts plus one number per block. That is a hypothesis, so a profiled table also
carries the error of its predictions on whole networks that it was not fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from deploynas.errors import InputError
from deploynas.files import parse_json, write_json
from deploynas.space import Architecture, Ragged, Space
from deploynas.space.coefficients import Cost, arrays


class Measurement(BaseModel):
    """One thing that was timed. `samples_ms[v]` are the raw samples of its v-th visit."""

    name: str
    latency_ms: float  # the device's statistic of the settled samples
    relative_error: float  # half-width of the 95 % interval of `latency_ms`, over `latency_ms`
    stable: bool
    samples_ms: list[list[float]]
    slowdown: list[float] = []  # by what factor the machine was slower than undisturbed, at each visit

    def settled_ms(self) -> list[list[float]]:
        """The samples with the machine's slowdown taken out, one list a visit."""
        slowdown = self.slowdown or [1.0] * len(self.samples_ms)
        return [[ms / slow for ms in visit] for visit, slow in zip(self.samples_ms, slowdown, strict=True)]

    @property
    def disturbance(self) -> float:
        """By what factor the machine was slower than undisturbed, at the median of the visits."""
        return float(sorted(self.slowdown)[len(self.slowdown) // 2]) if self.slowdown else 1.0


class NetworkMeasurement(Measurement):
    choices: list[list[int]]
    predicted_ms: float


class Validation(BaseModel):
    """Prediction against measurement on whole networks that no correction was fitted on."""

    networks: list[NetworkMeasurement]
    mean_error: float  # mean of |predicted - measured| / measured
    max_error: float
    kendall_tau: float | None  # None where all measurements are equal

    @classmethod
    def of(cls, networks: list[NetworkMeasurement]) -> Validation:
        from scipy.stats import kendalltau

        measured = [network.latency_ms for network in networks]
        predicted = [network.predicted_ms for network in networks]
        errors = [abs(p - m) / m for p, m in zip(predicted, measured, strict=True)]
        tau = float(kendalltau(predicted, measured).statistic)
        return cls(
            networks=networks,
            mean_error=sum(errors) / len(errors),
            max_error=max(errors),
            kendall_tau=tau if tau == tau else None,
        )


class Correction(BaseModel):
    """How isolated blocks became parts of a network, and what else was tried."""

    method: str
    coefficients: dict[str, float]
    held_out_error: dict[str, float]  # mean relative error of each method tried, on networks held out from it
    networks: list[NetworkMeasurement]


class Evidence(BaseModel):
    """Everything that was measured on the way to the table."""

    device: dict[str, Any]
    device_hash: str
    parts: list[Measurement]  # isolated: fixed parts by name, blocks by their geometry's name
    correction: Correction
    validation: Validation
    provenance: dict[str, Any]


class TableFile(BaseModel):
    schema_: Literal["deploynas/latency-table"] = Field(default="deploynas/latency-table", alias="schema")
    schema_version: int = 1
    space: dict[str, Any]
    space_hash: str
    fixed_ms: float
    block_ms: list[list[list[float]]]
    evidence: Evidence | None = None


@dataclass(frozen=True)
class LatencyTable:
    """Latency of any architecture of a space on one device, in milliseconds for one inference."""

    space: Space
    fixed_ms: float
    block_ms: Ragged  # [stage][block][configuration]
    evidence: Evidence | None = None

    @classmethod
    def from_arrays(cls, space: Space, fixed_ms: float, block_ms: Sequence) -> LatencyTable:
        fixed = float(fixed_ms)
        if not 0 <= fixed < float("inf"):
            raise InputError(f"fixed_ms must be finite and not negative, got {fixed_ms}")
        return cls(space, fixed, space.require_blocks(block_ms, "block_ms", minimum=0.0))

    @classmethod
    def load(cls, path: str | Path) -> LatencyTable:
        file = parse_json(Path(path), TableFile)
        space = Space.from_description(file.space)
        space.require_hash(file.space_hash, f"{path}: its table")
        table = cls.from_arrays(space, file.fixed_ms, file.block_ms)
        return cls(space, table.fixed_ms, table.block_ms, file.evidence)

    def save(self, path: str | Path) -> None:
        file = TableFile(
            space=self.space.describe(),
            space_hash=self.space.hash,
            fixed_ms=self.fixed_ms,
            block_ms=[[list(row) for row in stage] for stage in self.block_ms],
            evidence=self.evidence,
        )
        write_json(Path(path), file.model_dump(by_alias=True))

    def predict(self, architecture: Architecture) -> float:
        """Milliseconds of the whole network, fixed parts included (eq. 5)."""
        self.space.require_member(architecture)
        # plain additions in network order, as the search makes them; `sum` compensates since Python 3.12
        total = 0.0
        for s, b, c in architecture.decisions():
            total += self.block_ms[s][b][c]
        return self.fixed_ms + total

    def cost(self, budget: float = math.inf) -> Cost:
        """What a search adds up; without a budget it limits nothing."""
        if not 0 <= self.fixed_ms < math.inf:
            raise InputError(f"fixed_ms must be finite and not negative, got {self.fixed_ms}")
        blocks = self.space.require_blocks(self.block_ms, f"the table of {self.device_name}", minimum=0.0)
        name = f"latency_ms on {self.device_name}"
        return Cost(name, "sum", "ms", self.fixed_ms, arrays(blocks), budget, self.mean_error)

    @property
    def device_name(self) -> str:
        return self.evidence.device["name"] if self.evidence else "unnamed device"

    @property
    def mean_error(self) -> float | None:
        """The validated relative error of a prediction; None for a table that was not profiled."""
        return self.evidence.validation.mean_error if self.evidence else None
