"""The files of 8-bit weights that were trained: beside `network.safetensors`, which stays as it is.

`network.int8.safetensors` holds folded weights by their names in the graph; `network.int8.json` (schema
`deploynas/trained-quantization`) the ranges of activations, the `Quantization` that both were trained for, and which
weights they started from. They fit no other network and no other quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from deploynas import __version__
from deploynas.files import known_only, now, parse_json, write_json
from deploynas.provenance import TeacherRecord
from deploynas.quantization import Quantization
from deploynas.supernet.checkpoint_file import CheckpointFile, read_tensors, write_tensors

ENDING = ".int8.safetensors"
# of a `Quantization`: signed integers or unsigned ones, which are 128 higher, stand for the same numbers
OF_NO_MATTER = ("activations", "weights")

# as a field of a generated file
RecordedQuantization = Annotated[
    Quantization, BeforeValidator(lambda found: known_only(Quantization, found) if isinstance(found, dict) else found)
]


class QuantizedTuningRecord(BaseModel):
    """How 8-bit weights came about, and what they are worth. Accuracies are of 8 bits as torch emulates them."""

    fingerprint: str  # of everything that decided the outcome
    recipe: dict[str, JsonValue] = {}
    teacher: TeacherRecord | None = None
    calibration: dict[str, JsonValue] = {}  # that the ranges started from
    calibrated_accuracy: float | None = None  # validation images, before the first step
    validation_accuracy: float | None = None
    test_accuracy: float | None = None


class TrainedQuantizationFile(BaseModel):
    schema_: Literal["deploynas/trained-quantization"] = Field(default="deploynas/trained-quantization", alias="schema")
    schema_version: int = 1
    network_sha256: str  # of the weights that they started from
    quantization: RecordedQuantization
    ranges: dict[str, tuple[float, float]]
    weights_sha256: str
    about: QuantizedTuningRecord
    deploynas: str = ""
    created: str = ""


@dataclass(frozen=True)
class TrainedQuantization:
    """Folded weights and ranges, as the graph takes them."""

    weights: dict[str, np.ndarray]
    ranges: dict[str, tuple[float, float]]
    quantization: Quantization
    network_sha256: str
    about: QuantizedTuningRecord
    outdated: bool = False  # the network has other weights by now

    @staticmethod
    def path(network: Path) -> Path:
        """Where those of a network lie."""
        return network.with_name(network.with_suffix("").name + ENDING)

    @classmethod
    def beside(cls, network: Path) -> TrainedQuantization | None:
        """Those of a network, if it has any."""
        path = cls.path(network)
        if not path.with_suffix(".json").exists():
            return None
        file = parse_json(path.with_suffix(".json"), TrainedQuantizationFile)
        tensors = read_tensors(path, file.weights_sha256)
        weights = {name: tensor.numpy() for name, tensor in tensors.items()}
        now_there = parse_json(network.with_suffix(".json"), CheckpointFile).weights_sha256
        outdated = now_there != file.network_sha256
        return cls(weights, file.ranges, file.quantization, file.network_sha256, file.about, outdated)

    def save(self, network: Path) -> Path:
        path = self.path(network)
        sha256 = write_tensors(path, {name: torch.from_numpy(value) for name, value in self.weights.items()})
        file = TrainedQuantizationFile(
            network_sha256=self.network_sha256,
            quantization=self.quantization,
            ranges=self.ranges,
            weights_sha256=sha256,
            about=self.about,
            deploynas=__version__,
            created=now(),
        )
        write_json(path.with_suffix(".json"), file.model_dump(by_alias=True, mode="json"))
        return path

    def why_not(self, quantization: Quantization) -> str | None:
        """Why the network cannot be written with them for a device; None: it can."""
        if self.outdated:
            return "they were trained from other weights than the network has now"
        differing = _differences(self.quantization, quantization)
        return f"they were trained for {', '.join(differing)}" if differing else None


def remove_trained_quantization(network: Path) -> None:
    path = TrainedQuantization.path(network)
    for file in (path.with_suffix(".json"), path):
        file.unlink(missing_ok=True)


def _differences(trained: Quantization, wanted: Quantization) -> list[str]:
    """What was trained for and is not wanted, key by key."""
    theirs: dict[str, Any] = wanted.model_dump()
    ours = trained.model_dump(exclude=set(OF_NO_MATTER))
    return [f"`{key}: {_written(value)}`" for key, value in ours.items() if value != theirs[key]]


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
