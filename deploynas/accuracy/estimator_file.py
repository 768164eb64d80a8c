"""The file of an accuracy estimator: one schema for every kind, and one function that reads whichever it is.

An estimator embeds its space, so that it can be used without the YAML, and carries its validation on
sub-networks that had no part in it, so that `search` can say how far to trust a prediction.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from deploynas.errors import InputError
from deploynas.files import read_json
from deploynas.space import Architecture, Space

SCHEMA = "deploynas/estimator"
VERSION = 1

KINDS = {
    "bilinear": "deploynas.accuracy.bilinear:BilinearEstimator",
    "quadratic": "deploynas.accuracy.quadratic:QuadraticEstimator",
    "mlp": "deploynas.accuracy.mlp:MLPEstimator",
}


Interval = tuple[float, float]  # 95 %, by bootstrap over networks


class RankCorrelation(BaseModel):
    kendall_tau: float | None
    spearman: float | None


class Curve(BaseModel):
    """Predicted against measured accuracy, both rising; between the points a straight line, beyond them level."""

    predicted: list[float]
    measured: list[float]

    def __call__(self, predicted: float) -> float:
        return float(np.interp(predicted, self.predicted, self.measured))


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
    provenance: dict[str, Any] = {}

    def checked_space(self, path: str | Path) -> Space:
        space = Space.from_description(self.space)
        space.require_hash(self.space_hash, f"{path}: its estimator")
        return space


class Estimator(Protocol):
    """Predicts the accuracy (0..1) of any architecture of its space, and how uncertain that is."""

    @property
    def space(self) -> Space: ...

    @property
    def validation(self) -> EstimatorValidation | None: ...

    def predict(self, architecture: Architecture) -> float: ...

    def predict_se(self, architecture: Architecture) -> float | None: ...


def load_estimator(path: str | Path) -> Estimator:
    """Read an estimator of any kind."""
    kind = read_json(Path(path), SCHEMA, VERSION).get("kind")
    if kind not in KINDS:
        raise InputError(
            f"{path}: no estimator of kind {kind!r}",
            hint=f"this deploynas knows {', '.join(f'`{known}`' for known in KINDS)}",
        )
    module, name = KINDS[kind].split(":")
    return getattr(importlib.import_module(module), name).load(path)
