"""What a checkpoint remembers of its making, beside the weights: data, recipe, accuracies, teacher and lineage.

Training and fine-tuning write it as the `about` of a checkpoint's JSON file; whoever starts from a checkpoint reads it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from deploynas.files import checked_record, known_only, parse_json
from deploynas.provenance import DataRecord, NetworkLineage, Origin, TeacherRecord
from deploynas.space import Space
from deploynas.supernet.checkpoint import Checkpoint
from deploynas.supernet.checkpoint_file import CheckpointFile
from deploynas.training.data import Data
from deploynas.training.recipe import Recipe, preset_of

Role = Literal["w_h", "w_star", "network"]


class ImportRecord(BaseModel):
    """Where weights come from that were trained elsewhere, and what was done to them here."""

    format: Literal["ofa"]
    file: Origin  # its name without folders, and its SHA-256
    mean: list[float]  # that images were normalised with when it was trained
    std: list[float]
    recalibrated: bool = False  # batch-norm statistics are of the data's training images, not those of the file
    new_classifier: bool = False  # fitted to the data's training images
    checked_images: int = 0  # of the validation part, that `validation_accuracy` is of


class SubnetworkAccuracy(BaseModel):
    """Validation accuracies of random sub-networks of w*."""

    networks: int
    mean: float
    std: float
    lowest: float
    highest: float


class CheckpointRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Role | None = None  # None: written before roles were recorded
    fingerprint: str | None = None  # of everything that decided the outcome
    data: DataRecord | None = None
    data_place: str | None = None  # relative to the checkpoint's folder where possible; stays on this machine
    recipe: dict[str, JsonValue] = {}
    processes: int = 1
    validation_accuracy: float | None = None
    imported: ImportRecord | None = None  # of weights that were not trained here
    # of w*
    subnetworks: SubnetworkAccuracy | None = None
    accuracies: list[float] = []
    # of a fine-tuned network
    inherited_accuracy: float | None = None
    test_accuracy: float | None = None
    teacher: TeacherRecord | None = None
    from_scratch: bool = False
    untrained: bool | None = None  # random weights, to be timed and shipped as a promise of latency alone
    lineage: NetworkLineage = NetworkLineage()

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CheckpointRecord:
        return checked_record(cls, checkpoint.about, "the checkpoint")

    @classmethod
    def read(cls, path: Path) -> CheckpointRecord:
        """Of a checkpoint whose weights are not wanted."""
        described = path.with_suffix(".json")
        return checked_record(cls, parse_json(described, CheckpointFile).about, f"{described}: `about`")

    def about(self) -> dict[str, JsonValue]:
        """As it is written."""
        return self.model_dump(mode="json", exclude_none=True)

    def role_in(self, path: Path) -> Role:
        """Which weights these are; older files are recognised by what they hold, or by their name."""
        if self.role is not None:
            return self.role
        if self.subnetworks is not None:
            return "w_star"
        return "w_h" if path.stem == "w_h" else "w_star"

    def data_text(self, folder: Path) -> str | None:
        """The data set as `--data` takes it; `folder` is the checkpoint's."""
        if self.data is None or not self.data_place:
            return self.data.name if self.data else None
        beside = folder / self.data_place
        return f"{self.data.name}:{beside if beside.exists() else self.data_place}"

    def normalised(self, data: Data) -> Data:
        """The data with the normalisation that these weights were trained with; older files do not say."""
        known = self.imported or self.data
        return replace(data, mean=tuple(known.mean), std=tuple(known.std)) if known and known.mean else data

    def recipe_for(self, space: Space) -> Recipe:
        """The recipe it was made with; what it does not say is as in the space's preset."""
        preset = Recipe.load(preset_of(space.name)).model_dump(by_alias=True)
        return Recipe.model_validate({**preset, **known_only(Recipe, self.recipe)})


def place_beside(place: str, folder: Path) -> str | None:
    """Where data lie, relative to a folder; absolute where the two share nothing but the root."""
    if not place or not Path(place).exists():
        return place or None
    there, here = Path(place).resolve(), folder.resolve()
    shared = os.path.commonpath([there, here])
    return str(there) if shared == there.anchor else os.path.relpath(there, here)
