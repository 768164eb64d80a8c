"""The file that a search leaves behind, schema `deploynas/search-result`: what fine-tuning and export start
from.

It embeds the space and names by hash the estimator and the tables that it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from deploynas.errors import InputError
from deploynas.files import parse_json, sha256_of, write_json
from deploynas.provenance import ResultsRecord
from deploynas.recorded import Finite
from deploynas.search.ensemble_record import EnsembleRecord
from deploynas.search.frontier import FrontierPoint
from deploynas.search.problem import UNITS
from deploynas.search.result import AccuracyToExpect, SearchResult
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Estimator, Unit

# a strict model takes a list for a tuple only while it reads JSON itself, which one with a `before` does not
Interval = Annotated[
    tuple[Finite, Finite], BeforeValidator(lambda found: tuple(found) if isinstance(found, list) else found)
]


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


def _of_before(data: object) -> object:
    """In files of before `accuracy` was the score itself, and what to expect was beside it, where it was known."""
    if not isinstance(data, dict):
        return data
    read = dict(data)
    if "score" not in read and "accuracy" in read:
        read["score"] = read["accuracy"]
    if read.get("expected_accuracy") is not None:
        read["accuracy"] = read["expected_accuracy"]
    return read


class NetworkRecord(BaseModel):
    """A network that was found. `choices[s][b]` are indices of configurations in the embedded space."""

    architecture: str
    choices: list[list[int]]
    score: float  # predicted: what was maximised
    accuracy: float | None  # to expect one-shot, 0..1; None: the score only ranks
    accuracy_se: float | None
    accuracy_interval: Interval | None = None  # that 90 % of such networks are within
    measured_accuracy: float | None = None  # one-shot, batch norm recalibrated, by `--rerank` or `--measure`
    measured_accuracy_se: float | None = None
    measured_latency_ms: float | None = None  # of the whole network on a device, by `--measure`
    measured_latency_error: float | None = None  # relative: half-width of its 95 % interval
    params: int
    macs: int
    size_bytes: int
    peak_memory_bytes: int
    limits: list[LimitRecord]
    solver: str
    optimal: bool
    gap: float | None  # of the score

    _before = model_validator(mode="before")(_of_before)


class SharingRecord(BaseModel):
    """What one device loses by taking the shared network."""

    limit: str
    own: NetworkRecord
    loss: float | None  # of accuracy to expect (of score, if it only ranks); None: no network is within all limits


class FrontierRecord(BaseModel):
    architecture: str
    choices: list[list[int]]
    score: float
    accuracy: float | None  # as in a `NetworkRecord`
    accuracy_se: float | None = None
    accuracy_interval: Interval | None = None
    latency_ms: float

    _before = model_validator(mode="before")(_of_before)


class CheckedNetwork(BaseModel):
    """A network of the frontier: what was expected of it, and what it then measured one-shot."""

    choices: list[list[int]]
    latency_ms: float  # predicted
    accuracy: float
    accuracy_interval: tuple[float, float] | None
    measured_accuracy: float
    measured_accuracy_se: float


class RefinementRound(BaseModel):
    """Expected against measured accuracy on networks of the frontier that the estimator had not been told of."""

    networks: int
    mean_error: float  # of expected - measured
    mean_error_se: float
    rmse: float
    coverage: float | None  # share of networks within their 90 % intervals; None: there were none
    measured: list[CheckedNetwork]

    @property
    def settled(self) -> bool:
        """Whether the mean error cannot be told from zero."""
        return abs(self.mean_error) <= self.mean_error_se


class ValidatedRecord(BaseModel):
    """A network of HNAS's pool, and its one-shot accuracy."""

    choices: list[list[int]]
    kappa: float
    metric: float
    measured_accuracy: float
    measured_accuracy_se: float


class ProposedRecord(ValidatedRecord):
    """One that a pair of numbers led to."""

    mu: float
    nu: float


class HnasRecord(BaseModel):
    """What HNAS minimised over which pool, and what it spent."""

    metric: str  # which training-free score is M
    mu: float  # that led to the first network
    nu: float
    pool: int  # networks within the limits
    scores: int  # that were computed
    validations: int  # of networks that the objective proposed, each once
    proposals: list[ProposedRecord]  # in the order in which they were made
    random: list[ValidatedRecord]  # as many networks of the pool, drawn at random


class ExpectedRecord(BaseModel):
    """A cost where decisions are still probabilities, and that of the most probable network."""

    name: str
    expected: float
    most_probable: float
    budget: float
    unit: Unit


class GammaRecord(BaseModel):
    """A relaxed search at one weight of its penalty, before any repair."""

    gamma: float
    steps: int
    primary_loss: float  # cross-entropy of the mixed network on D_p, in the mean over the last epoch
    auxiliary_loss: float  # the same on D_a
    expected: list[ExpectedRecord]
    most_probable: list[list[int]]  # choices: the argmax of every decision
    within: bool  # whether that network keeps the limits that add up


class ChangedDecision(BaseModel):
    """Null: the decision does not count in that network."""

    decision: str
    before: str | None
    after: str | None


class RelaxedRecord(BaseModel):
    """How a relaxed search came to its network."""

    updates: str  # rarts, darts or milenas
    gamma: float  # whose search was taken
    steps: int  # of that search
    settings: dict[str, float]
    tried: list[GammaRecord]  # in the order in which gammas were tried
    repaired: list[ChangedDecision]  # what the exact search changed about the most probable network; empty: nothing


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
    budget_reason: str | None = None  # where the latency budget of the networks comes from, in words
    as_good: FrontierRecord | None = None  # much faster than the budget asks for, and expected to be as accurate
    refinement: list[RefinementRound] = []  # of the estimator, where this search went
    hnas: HnasRecord | None = None  # how `--solver hnas` found them
    relaxed: RelaxedRecord | None = None  # how `--solver rarts` found them
    ensemble: EnsembleRecord | None = None  # the networks answer together, within one budget
    estimator: InputRecord | None  # None: the solver took none
    estimator_validation: dict[str, Any] | None = None
    ranked_by: str | None = None  # what scores are, in words, where they only rank; None: they are about accuracy
    estimator_results: ResultsRecord | None = None  # that the estimator was made from, if not from a supernet
    tables: list[InputRecord] = []
    provenance: dict[str, Any] = {}

    def the_space(self) -> Space:
        return Space.from_description(self.space)

    def network(self, number: int, where: str | Path = "the search result") -> Architecture:
        """The one with this number, counted from 1, in the order in which networks are shown."""
        records = self.networks or [record.own for record in self.each] or self.frontier
        if not 1 <= number <= len(records):
            raise InputError(
                f"{where} has {len(records)} networks, there is no number {number}",
                hint="`search --top K` and `search --frontier` number more of them",
            )
        return self.the_space().architecture(records[number - 1].choices)

    def architectures(self) -> list[Architecture]:
        """The networks, best first."""
        space = self.the_space()
        return [space.architecture(network.choices) for network in self.networks]

    @property
    def budget_ms(self) -> float | None:
        """What the networks were held to on the only device; None if there are several, or none."""
        budgets = {use.budget for network in self.networks[:1] for use in network.limits if use.unit == "ms"}
        return budgets.pop() if len(budgets) == 1 else None

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
        accuracy_interval=result.accuracy_interval,
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
            loss=_loss(own, shared) if shared else None,
        )
        for own in each
    ]


def _loss(own: SearchResult, shared: SearchResult) -> float:
    if own.accuracy is None or shared.accuracy is None:
        return own.score - shared.score
    return own.accuracy - shared.accuracy


def frontier_record(point: FrontierPoint, estimator: Estimator) -> FrontierRecord:
    expected = AccuracyToExpect.of(estimator, point.architecture, point.score, point.scale)
    return FrontierRecord(
        architecture=str(point.architecture),
        choices=_choices(point.architecture),
        score=point.score,
        accuracy=expected.accuracy,
        accuracy_se=expected.se,
        accuracy_interval=expected.interval,
        latency_ms=point.latency_ms,
    )


def input_record(path: Path, content: Path | None = None) -> InputRecord:
    """A file as it was named; `content` is where it is, if that is elsewhere."""
    return InputRecord(path=str(path), sha256=sha256_of(content or path))


def _choices(architecture: Architecture) -> list[list[int]]:
    return [list(choice) for choice in architecture.choices]
