"""The latency table: what every block configuration costs on one device, and how far to trust it (eq. 5).

A table is additive: the fixed parts plus one number per block. That is a hypothesis, so a profiled table also
carries the error of its predictions on whole networks that it was not fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

from deploynas.device import Device, RecordedDevice
from deploynas.errors import InputError
from deploynas.files import parse_json, write_json
from deploynas.graph import DEFAULT_FORMS, OperatorForms
from deploynas.latency.form_choice import FormChoice
from deploynas.latency.measured_on import MeasuredOn
from deploynas.recorded import Finite, NotNegative, Positive, Uncertainty
from deploynas.space import Architecture, Ragged, Space
from deploynas.space.coefficients import Cost, arrays

if TYPE_CHECKING:
    from typing_extensions import Self

# entries that suffer alike are placed relative to each other, so a latency may lie a little outside its own samples
ELSEWHERE = 2.0


def computed(samples_ms: Sequence[float], waited_ms: Sequence[float]) -> np.ndarray:
    """Samples of a visit without the time that other programs had the core."""
    return np.subtract(samples_ms, waited_ms) if waited_ms else np.asarray(samples_ms, float)


class Measurement(BaseModel):
    """One thing that was timed. `samples_ms[v]` are the raw samples of its v-th visit."""

    name: str
    latency_ms: Positive  # the device's statistic of the settled samples
    relative_error: Uncertainty  # half-width of the 95 % interval of `latency_ms`, over `latency_ms`
    stable: bool
    samples_ms: Annotated[list[Annotated[list[Positive], Field(min_length=1)]], Field(min_length=1)]
    # the part of each sample in which another program had the core; empty: none
    waited_ms: list[list[NotNegative]] = []
    slowdown: list[Positive] = []  # by what factor the machine was slower than undisturbed, at each visit

    @model_validator(mode="after")
    def _of_one_piece(self) -> Self:
        """Every visit has its waits and its slowdown, and the latency is one that such samples can have."""
        visits = len(self.samples_ms)
        for name, told in (("waited_ms", self.waited_ms), ("slowdown", self.slowdown)):
            if told and len(told) != visits:
                raise ValueError(f"have as many visits in `{name}` as in `samples_ms`: {visits}, not {len(told)}")
        for number, (samples, waited) in enumerate(zip(self.samples_ms, self.waited_ms, strict=False)):
            if waited and len(waited) != len(samples):
                raise ValueError(f"have as many waits as samples in visit {number}: {len(samples)}, not {len(waited)}")
            if any(wait > sample for sample, wait in zip(samples, waited, strict=False)):
                raise ValueError(f"have waited no longer than each sample took, in visit {number}")
        settled = self.settled_ms()
        low, high = min(visit.min() for visit in settled), max(visit.max() for visit in settled)
        if not low / ELSEWHERE <= self.latency_ms <= high * ELSEWHERE:
            raise ValueError(f"have a latency that its samples have: {low:.4g} to {high:.4g} ms")
        return self

    def computed_ms(self) -> list[np.ndarray]:
        """The samples without the time that other programs had the core, one array a visit."""
        waited = self.waited_ms or [[]] * len(self.samples_ms)
        return [computed(*visit) for visit in zip(self.samples_ms, waited, strict=True)]

    def settled_ms(self) -> list[np.ndarray]:
        """Those with the machine's slowdown taken out too."""
        slowdown = self.slowdown or [1.0] * len(self.samples_ms)
        return [visit / slow for visit, slow in zip(self.computed_ms(), slowdown, strict=True)]

    @property
    def disturbance(self) -> float:
        """By what factor the machine was slower than undisturbed, at the median of the visits."""
        return float(sorted(self.slowdown)[len(self.slowdown) // 2]) if self.slowdown else 1.0


class NetworkMeasurement(Measurement):
    choices: list[list[int]]
    predicted_ms: NotNegative


class Validation(BaseModel):
    """Prediction against measurement on whole networks that no correction was fitted on."""

    networks: list[NetworkMeasurement]
    mean_error: NotNegative  # mean of |predicted - measured| / measured
    max_error: NotNegative
    kendall_tau: Finite | None  # None where all measurements are equal

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
    coefficients: dict[str, Finite]
    held_out_error: dict[str, NotNegative]  # mean relative error of each method tried, on networks held out from it
    networks: list[NetworkMeasurement]


class Evidence(BaseModel):
    """Everything that was measured on the way to the table."""

    device: RecordedDevice
    device_hash: str
    parts: list[Measurement]  # isolated: fixed parts by name, blocks by their geometry's name
    correction: Correction
    validation: Validation
    provenance: MeasuredOn
    forms: FormChoice = FormChoice()

    def device_here(self) -> Device:
        """The device that was measured, if that was this machine."""
        if self.provenance.get("elsewhere"):
            raise InputError(
                "the table was measured on another machine, and a table does not say how to reach it",
                hint="`--device`, with the device file that names its `host`",
            )
        return self.device


class LatencyRecord(BaseModel):
    """The numbers of a table at one input size."""

    fixed_ms: NotNegative
    block_ms: list[list[list[NotNegative]]]


class SizeRecord(LatencyRecord):
    size: int


class TableFile(BaseModel):
    """One input size: `fixed_ms` and `block_ms`. Several to choose from: `sizes`, an entry for each."""

    schema_: Literal["deploynas/latency-table"] = Field(default="deploynas/latency-table", alias="schema")
    schema_version: int = 1
    space: dict[str, Any]
    space_hash: str
    fixed_ms: NotNegative | None = None
    block_ms: list[list[list[NotNegative]]] | None = None
    sizes: list[SizeRecord] = []
    evidence: Evidence | None = None

    def table(self, space: Space) -> LatencyTable:
        if space.sizes:
            if [record.size for record in self.sizes] != list(space.sizes):
                raise InputError(f"a table of space `{space.name}` has `sizes` {', '.join(map(str, space.sizes))}")
            fixed, blocks = [own.fixed_ms for own in self.sizes], [own.block_ms for own in self.sizes]
            return LatencyTable.from_arrays(space, fixed, blocks)
        if self.fixed_ms is None or self.block_ms is None:
            raise InputError("a table has `fixed_ms` and `block_ms`")
        return LatencyTable.from_arrays(space, self.fixed_ms, self.block_ms)


@dataclass(frozen=True)
class LatencyTable:
    """Latency of any architecture of a space on one device, in milliseconds for one inference.

    Of a space that leaves the input size open it is the tables of all sizes, and has no numbers of its own.
    """

    space: Space
    fixed_ms: float
    block_ms: Ragged  # [stage][block][configuration]
    evidence: Evidence | None = None
    by_size: tuple[LatencyTable, ...] = ()  # in the order of `space.sizes`

    @classmethod
    def from_arrays(cls, space: Space, fixed_ms: float | Sequence[float], block_ms: Sequence) -> LatencyTable:
        """`block_ms[s][b][c]`; where the input size is open, lists of both: one entry for every size."""
        if space.sizes:
            if not isinstance(fixed_ms, Sequence) or not len(fixed_ms) == len(block_ms) == len(space.sizes):
                raise InputError(f"fixed_ms and block_ms must have an entry for each of {len(space.sizes)} input sizes")
            numbers = zip(space.each_size(), fixed_ms, block_ms, strict=True)
            return cls.joined(space, [cls.from_arrays(*own) for own in numbers])
        if isinstance(fixed_ms, Sequence) or not 0 <= float(fixed_ms) < math.inf:
            raise InputError(f"fixed_ms must be finite and not negative, got {fixed_ms}")
        return cls(space, float(fixed_ms), space.require_blocks(block_ms, "block_ms", minimum=0.0))

    @classmethod
    def joined(cls, space: Space, by_size: Sequence[LatencyTable]) -> LatencyTable:
        """The table of a space from those of its input sizes; the one there is where nothing is open."""
        return cls(space, math.nan, (), by_size=tuple(by_size)) if space.sizes else by_size[0]

    @classmethod
    def load(cls, path: str | Path) -> LatencyTable:
        file = parse_json(Path(path), TableFile)
        space = Space.from_description(file.space)
        space.require_hash(file.space_hash, f"{path}: its table")
        try:
            table = replace(file.table(space), evidence=file.evidence)
            table.require_own_evidence()
        except InputError as error:
            raise InputError(f"{path}: {error.message}", hint=error.hint) from error
        return table

    def save(self, path: str | Path) -> None:
        numbers = [(own.fixed_ms, [[list(row) for row in stage] for stage in own.block_ms]) for own in self.each_size()]
        sizes = [
            SizeRecord(size=size, fixed_ms=fixed, block_ms=blocks)
            for size, (fixed, blocks) in zip(self.space.sizes, numbers, strict=False)
        ]
        fixed_ms, block_ms = (None, None) if sizes else numbers[0]
        file = TableFile(
            space=self.space.describe(),
            space_hash=self.space.hash,
            fixed_ms=fixed_ms,
            block_ms=block_ms,
            sizes=sizes,
            evidence=self.evidence,
        )
        absent = {"fixed_ms", "block_ms"} if sizes else {"sizes"}
        write_json(Path(path), file.model_dump(by_alias=True, exclude=absent))

    def require_own_evidence(self) -> None:
        """Refuse numbers that are not the ones whose predictions were compared with measurements."""
        evidence = self.evidence
        for network in [*evidence.correction.networks, *evidence.validation.networks] if evidence else []:
            found = self.predict(self.space.architecture(network.choices))
            if not math.isclose(found, network.predicted_ms, rel_tol=1e-6):
                raise InputError(
                    f"its numbers are not those of its evidence: network {network.choices} is {found:.4g} ms by the "
                    f"table and was {network.predicted_ms:.4g} ms when that was made",
                    hint="profile it again; a table without `evidence` is one that was not measured",
                )

    def each_size(self) -> tuple[LatencyTable, ...]:
        """The table of every input size; itself where there is one."""
        return self.by_size or (self,)

    def at(self, architecture: Architecture) -> LatencyTable:
        """The table of a network's input size."""
        return self.each_size()[architecture.size_index]

    def predict(self, architecture: Architecture) -> float:
        """Milliseconds of the whole network, fixed parts included (eq. 5)."""
        self.space.require_member(architecture)
        own = self.at(architecture)
        # plain additions in network order, as the search makes them; `sum` compensates since Python 3.12
        total = 0.0
        for s, b, c in architecture.blocks():
            total += own.block_ms[s][b][c]
        return own.fixed_ms + total

    def predict_rows(self, rows: np.ndarray) -> np.ndarray:
        """Of many networks at once, up to rounding."""
        found, groups = np.empty(len(rows)), self.space.built_groups
        active = self.space.decisions.active(rows)
        for i, own in enumerate(self.each_size()):
            there = rows[:, -1] == i if self.by_size else np.full(len(rows), True)
            # beside blocks nothing costs: no depth, and the size is in the numbers
            block_ms = [*own.block_ms, *([[[0.0] * len(self.by_size)]] if self.by_size else [])]
            depths = [*([0.0] * len(group.depths) for group in groups), *([[0.0]] if self.by_size else [])]
            found[there] = own.fixed_ms + active[there] @ self.space.decisions.flat(depths, block_ms)
        return found

    def option_ms(self) -> Ragged:
        """What every option takes, in the mean over the other decisions: `block_ms`, and behind it the input sizes.

        Of a size that is the latency of a whole network.
        """
        if not self.by_size:
            return self.block_ms
        stages = range(len(self.space.built_groups))
        rows_of = [zip(*(own.block_ms[s] for own in self.by_size), strict=True) for s in stages]
        means = [[np.mean(rows, axis=0) for rows in of_stage] for of_stage in rows_of]
        whole = [own.mean_ms() for own in self.by_size]
        return tuple(tuple(tuple(map(float, row)) for row in stage) for stage in [*means, [whole]])

    def mean_ms(self) -> float:
        """Of a network whose decisions are drawn, at one input size."""
        total = self.fixed_ms
        for group, rows in zip(self.space.built_groups, self.block_ms, strict=True):
            for b, row in enumerate(rows):
                taking_part = sum(depth > b for depth in group.depths) / len(group.depths)
                total += taking_part * float(np.mean(row))
        return total

    def cost(self, budget: float = math.inf) -> Cost:
        """What a search adds up; without a budget it limits nothing."""
        name = f"latency_ms on {self.device_name}"
        costs = []
        for own in self.each_size():
            if not 0 <= own.fixed_ms < math.inf:
                raise InputError(f"fixed_ms must be finite and not negative, got {own.fixed_ms}")
            blocks = own.space.require_blocks(own.block_ms, f"the table of {self.device_name}", minimum=0.0)
            costs.append(Cost(name, "sum", "ms", own.fixed_ms, arrays(blocks), budget, self.mean_error))
        return Cost.joined(costs)

    @property
    def device_name(self) -> str:
        return self.evidence.device.name if self.evidence else "unnamed device"

    @property
    def forms(self) -> OperatorForms:
        """That its parts and networks were written in; a network keeps its latency if it is shipped in them."""
        return self.evidence.forms.chosen if self.evidence else DEFAULT_FORMS

    @property
    def mean_error(self) -> float | None:
        """The validated relative error of a prediction; None for a table that was not profiled."""
        return self.evidence.validation.mean_error if self.evidence else None
