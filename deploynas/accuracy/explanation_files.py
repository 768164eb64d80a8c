"""What `explain` says about given networks, as files have it: one with its single changes, or two beside each other."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.changes import single_changes
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.network_comparison import compare_networks
from deploynas.space import Architecture
from deploynas.space.coefficients import Priced


class NetworkExpectation(BaseModel):
    """What to expect of a network. Accuracy is a fraction, one-shot."""

    architecture: str
    accuracy: float | None  # None: a sum of contributions that no measured network has been held against
    accuracy_se: float | None
    latency_ms: float | None


class ChangeRecord(BaseModel):
    """One thing about a network changed: expected afterwards minus expected before."""

    place: str
    what: str
    architecture: str
    accuracy: float
    accuracy_se: float | None
    latency_ms: float | None
    accuracy_per_ms: float | None


class AtNetwork(BaseModel):
    network: NetworkExpectation
    changes: list[ChangeRecord]


class PartRecord(BaseModel):
    """What one decision in which two networks differ adds to the difference."""

    place: str
    what: str
    accuracy: float
    accuracy_se: float | None
    latency_ms: float | None


class NetworkComparisonFile(BaseModel):
    """Differences are those of `network` minus `other`; the parts add up to them."""

    schema_: Literal["deploynas/network-comparison"] = Field(default="deploynas/network-comparison", alias="schema")
    schema_version: int = 1
    space: str
    device: str | None
    network: NetworkExpectation
    other: NetworkExpectation
    accuracy: float
    accuracy_se: float | None
    latency_ms: float | None
    parts: list[PartRecord]


def expected_network(estimator: StoredEstimator, network: Architecture, table: Priced | None) -> NetworkExpectation:
    latency = table.cost().total(network) if table else None
    if isinstance(estimator, BilinearEstimator) and (
        estimator.validation is None or estimator.validation.curve is None
    ):
        return NetworkExpectation(architecture=str(network), accuracy=None, accuracy_se=None, latency_ms=latency)
    expected = estimator.expect(network)
    return NetworkExpectation(
        architecture=str(network), accuracy=expected.accuracy, accuracy_se=expected.se, latency_ms=latency
    )


def at_network(estimator: StoredEstimator, network: Architecture, table: Priced | None) -> AtNetwork:
    changes = [
        ChangeRecord(**{**vars(c), "architecture": str(c.architecture)}, accuracy_per_ms=c.accuracy_per_ms)
        for c in single_changes(estimator, network, table)
    ]
    return AtNetwork(network=expected_network(estimator, network, table), changes=changes)


def network_comparison_file(
    estimator: StoredEstimator, networks: tuple[Architecture, Architecture], table: Priced | None, device: str | None
) -> NetworkComparisonFile:
    found = compare_networks(estimator, *networks, table)
    return NetworkComparisonFile(
        space=estimator.space.name,
        device=device,
        network=expected_network(estimator, found.after, table),
        other=expected_network(estimator, found.before, table),
        accuracy=found.accuracy.accuracy,
        accuracy_se=found.accuracy.se,
        latency_ms=found.latency_ms,
        parts=[
            PartRecord(
                place=part.place,
                what=part.what,
                accuracy=part.accuracy.accuracy,
                accuracy_se=part.accuracy.se,
                latency_ms=part.latency_ms,
            )
            for part in found.parts
        ],
    )
