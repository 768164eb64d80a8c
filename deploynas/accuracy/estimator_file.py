"""The file of an accuracy estimator: one schema for every kind, and one function that reads whichever it is.

An estimator embeds its space, so that it can be used without the YAML, and carries its validation on
sub-networks that had no part in it, so that `search` can say how far to trust a prediction.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from deploynas.accuracy.comparisons import MeasuredComparison
from deploynas.accuracy.expectation import Expectation
from deploynas.accuracy.registry import ESTIMATORS, require_known
from deploynas.accuracy.shipped_estimators import find_estimator
from deploynas.errors import InputError
from deploynas.files import parse_json, read_json, write_json
from deploynas.parsing import shown
from deploynas.provenance import ResultsRecord
from deploynas.recorded import Finite
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Objective, Scale

if TYPE_CHECKING:
    from typing_extensions import Self

SCHEMA = "deploynas/estimator"
VERSION = 1

Interval = tuple[float, float]  # 95 %, by bootstrap over networks


class RankCorrelation(BaseModel):
    kendall_tau: float | None
    spearman: float | None


class Curve(BaseModel):
    """Predicted against measured accuracy, both rising; between the points a straight line, beyond them level."""

    predicted: list[Finite]
    measured: list[Finite]

    @model_validator(mode="after")
    def _has_points(self) -> Self:
        if not 0 < len(self.predicted) == len(self.measured):
            raise ValueError("have points: as many accuracies measured as predicted, and one at least")
        if any(low > high for low, high in pairwise(self.predicted)):
            raise ValueError("have predictions that rise")
        return self

    def __call__(self, predicted: float) -> float:
        return float(np.interp(predicted, self.predicted, self.measured))


class GroupValidation(BaseModel):
    """Of one group of networks, such as those of one search, by a fit to the networks that are not of it."""

    name: str
    networks: int
    measured_std: float | None  # how much there is to rank
    kendall_tau: float | None
    mean_error: float  # of |predicted - measured|
    bias: float  # the mean of predicted - measured
    top_networks: int  # the tenth with the highest predictions: where a search goes
    top_bias: float
    coverage: float | None  # share within the 90 % intervals


class EstimatorValidation(BaseModel):
    """Prediction against measurement on unseen sub-networks; accuracy is a fraction, so are the errors."""

    model_config = ConfigDict(extra="allow")

    networks: int
    images: int | None = None  # that each network was measured on
    measured_std: float | None = None  # of the networks' accuracies: how much there is to rank
    kendall_tau: float | None = None
    kendall_tau_interval: Interval | None = None
    spearman: float | None = None
    spearman_interval: Interval | None = None
    pearson: float | None = None
    pearson_interval: Interval | None = None
    mean_error: float | None = None  # of |predicted - measured|
    mean_error_interval: Interval | None = None
    noise_ceiling: float | None = None  # Kendall tau between two halves of the images, same networks
    noise_ceiling_spearman: float | None = None
    ablations: dict[str, RankCorrelation] = {}  # `without_depth`, `without_block`
    curve: Curve | None = None  # what predictions are worth, up to the best networks
    # on networks of the frontier, the last that a refinement measured, before it was told of them
    frontier_networks: int | None = None
    frontier_mean_error: float | None = None  # of expected - measured
    frontier_mean_error_se: float | None = None
    frontier_coverage: float | None = None  # share of them within their 90 % intervals
    # from a file of results: networks were left out in turn, so many parts of them, each judged by a fit without it
    folds: int | None = None
    bias: float | None = None  # the mean of predicted - measured
    top_networks: int | None = None  # the tenth with the highest predictions
    top_bias: float | None = None
    coverage: float | None = None  # share within the 90 % intervals
    groups: list[GroupValidation] = []  # the same with whole groups left out

    def expected(self, predicted: float) -> float | None:
        """The measured accuracy to expect of a network with this prediction."""
        return self.curve(predicted) if self.curve else None


class EstimatorFile(BaseModel):
    """What the files of all kinds share."""

    schema_: Literal["deploynas/estimator"] = Field(default="deploynas/estimator", alias="schema")
    schema_version: int = VERSION
    kind: str
    space: dict[str, Any]
    space_hash: str
    validation: EstimatorValidation | None = None
    comparisons: list[MeasuredComparison] = []
    results: ResultsRecord | None = None  # that it was made from, if not from a supernet
    provenance: dict[str, Any] = {}

    def checked_space(self) -> Space:
        space = Space.from_description(self.space)
        space.require_hash(self.space_hash, "its estimator")
        return space


@dataclass(frozen=True)
class StoredEstimator(ABC):
    """What estimators of every kind share: a space, a validation, where they came from, and a file.

    `comparisons` are what the samples said about design choices before they became an estimator; see `compared`.
    A kind adds its coefficients, and says how they get into its `File` and out of it again.
    """

    File: ClassVar[type[EstimatorFile]]
    scale: ClassVar[Scale] = "accuracy"  # `ordinal`: predictions only rank, and no accuracy is expected of anything

    space: Space
    validation: EstimatorValidation | None = field(default=None, kw_only=True)
    comparisons: tuple[MeasuredComparison, ...] = field(default=(), kw_only=True)
    results: ResultsRecord | None = field(default=None, kw_only=True)
    provenance: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def predict(self, architecture: Architecture) -> float:
        """The accuracy (0..1) of an architecture of the space; on an ordinal scale a number that ranks it."""

    @abstractmethod
    def predict_se(self, architecture: Architecture) -> float | None:
        """How uncertain a prediction is; None when that is not known."""

    def expected(self, score: float) -> float:
        """The accuracy to expect of networks with this prediction: what such networks measured, where that is known."""
        if self.scale == "ordinal":
            raise InputError(
                "the estimator only ranks networks: it does not know what accuracy to expect of one",
                hint="train a supernet and estimate from it: `deploynas train`, `deploynas estimate --supernet RUN`",
            )
        found = self.validation.expected(score) if self.validation else None
        return score if found is None else found

    def expect(self, architecture: Architecture) -> Expectation:
        """The one accuracy that people are shown, with its standard error."""
        return Expectation(self.expected(self.predict(architecture)), self.predict_se(architecture))

    @abstractmethod
    def objective(self) -> Objective:
        """What a search maximises: the prediction by its coefficients, if it has some."""

    @property
    def ranked_by(self) -> str | None:
        """In words, what predictions are where they only rank; None where they are accuracies."""
        return None

    @abstractmethod
    def _coefficients(self) -> dict[str, object]:
        """The fields of `File` that the kind adds."""

    @classmethod
    @abstractmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> Self:
        """From an instance of `File`; what the kinds share is filled in afterwards."""

    def save(self, path: str | Path) -> None:
        shared = {
            "space": self.space.describe(),
            "space_hash": self.space.hash,
            "validation": self.validation,
            "comparisons": self.comparisons,
            "results": self.results,
            "provenance": self.provenance,
        }
        file = self.File.model_validate({**shared, **self._coefficients()})
        write_json(Path(path), file.model_dump(by_alias=True))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a file, or by the name of one that ships."""
        file = parse_json(find_estimator(path), cls.File)
        try:
            estimator = cls._from_file(file.checked_space(), file)
        except InputError as error:
            raise InputError(f"{path}: {error.message}", hint=error.hint) from error
        return replace(
            estimator,
            validation=file.validation,
            comparisons=tuple(file.comparisons),
            results=file.results,
            provenance=file.provenance,
        )


def load_estimator(path: str | Path) -> StoredEstimator:
    """Read an estimator of any kind, from a file or by the name of one that ships."""
    kind = read_json(find_estimator(path), SCHEMA, VERSION).get("kind")
    if not isinstance(kind, str) or kind not in ESTIMATORS:
        raise InputError(
            f"{path}: no estimator of kind {shown(repr(kind))}",
            hint=f"this deploynas knows {', '.join(f'`{known}`' for known in ESTIMATORS)}",
        )
    return estimator_class(kind).load(path)


def estimator_class(kind: str) -> type[StoredEstimator]:
    require_known("kind of estimator", kind, ESTIMATORS)
    module, name = ESTIMATORS[kind].split(":")
    return cast("type[StoredEstimator]", getattr(importlib.import_module(module), name))
