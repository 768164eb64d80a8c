"""A trained supernet as an input of other steps: w* with its data, loaded once and handed on.

Every command takes a supernet in the same way: the folder of a run, a folder that holds `w_star`, or the file itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deploynas.accuracy.oneshot import SupernetMeasure, best_device
from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.pipeline.run_folder import W_STAR, RunFolder
from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import Checkpoint, load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import RandomPaths
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord, ImportRecord
from deploynas.training.data import Data, load_data
from deploynas.training.evaluation import for_each_size, recalibrate_on_train
from deploynas.training.recipe import Augmentation
from deploynas.training.teacher import Teacher, load_teacher

if TYPE_CHECKING:
    from torch import nn

BATCH = 200  # images at once: of more, the wide middle of a block no longer fits a cache
RECALIBRATION_IMAGES = 4000


@dataclass(frozen=True)
class TrainedSupernet:
    path: Path  # w_star.safetensors
    checkpoint: Checkpoint
    data: Data

    @property
    def space(self) -> Space:
        return self.checkpoint.space

    @cached_property
    def record(self) -> CheckpointRecord:
        return CheckpointRecord.of(self.checkpoint)

    @property
    def network(self) -> Supernet:
        assert isinstance(self.checkpoint.model, Supernet)
        return self.checkpoint.model

    @cached_property
    def batches(self) -> Batches:
        """For evaluation only: nothing is augmented."""
        return Batches(self.data, self.space, Augmentation(), best_device())

    @cached_property
    def one_shot(self) -> SupernetMeasure:
        validation = self.data.validation
        network = self.network.to(self.batches.device)
        if self._statistics_of_elsewhere:
            recalibrate_on_train(
                network, self.batches, RECALIBRATION_IMAGES, RandomPaths(self.space, np.random.default_rng(0))
            )
        networks = for_each_size(network, self.batches, RECALIBRATION_IMAGES)
        return SupernetMeasure(networks, lambda: self.batches.evaluation(validation, BATCH), len(validation))

    @property
    def _statistics_of_elsewhere(self) -> bool:
        """Whether batch norm has statistics of images that are not ours: it was imported without any."""
        return self.record.imported is not None and not self.record.imported.recalibrated

    @property
    def identity(self) -> dict[str, str | None]:
        """Weights and split: what measurements of this supernet are kept by."""
        described = self.data.describe()
        sha256 = self.checkpoint.weights_sha256
        return {"weights_sha256": sha256, "data": described.name, "split_hash": described.split_hash}

    def samples_folder(self, parent: Path | None = None) -> Path:
        """Apart from the measurements of any other supernet or data."""
        return (parent or RunFolder.around(self.path).samples) / content_hash(self.identity)

    def accuracy_alone(self, architecture: Architecture) -> tuple[float, float]:
        """One-shot accuracy of a sub-network, batch norm recalibrated on training images, and its standard error."""
        right = self.right_alone(architecture)
        return float(right.mean()), float(right.std(ddof=1)) / len(right) ** 0.5

    def right_alone(self, architecture: Architecture) -> np.ndarray:
        """Whether such a sub-network is right about each validation image."""
        return self.one_shot.alone(architecture, self._recalibrate).right

    def cut_out(self, architecture: Architecture) -> nn.Module:
        """Such a sub-network itself."""
        return self.one_shot.cut_out(architecture, self._recalibrate)

    def _recalibrate(self, network: nn.Module) -> None:
        recalibrate_on_train(network, self.batches, RECALIBRATION_IMAGES)

    def teacher_text(self, asked: str | None) -> str:
        """Who teaches: whoever was asked for, else w_h beside the supernet."""
        return asked or str(self.path.with_name("w_h.safetensors"))

    def teacher(self, asked: str | None) -> Teacher:
        text = self.teacher_text(asked)
        if text not in self._teachers:
            teacher = load_teacher(text, self.space, self.data)
            if asked is None and self._statistics_of_elsewhere:
                recalibrate_on_train(teacher.model.to(self.batches.device), self.batches, RECALIBRATION_IMAGES)
            self._teachers[text] = teacher
        return self._teachers[text]

    @cached_property
    def _teachers(self) -> dict[str, Teacher]:
        return {}


def find_supernet(source: str | Path | RunFolder) -> Path:
    """The file of w*, from the folder of a run, a folder that holds it, or itself; w_h is refused."""
    place = source.path if isinstance(source, RunFolder) else Path(source)
    path = place.with_suffix(".safetensors") if place.suffix == ".json" else place
    if place.is_dir():
        there = [found for found in (RunFolder(place).w_star, place / W_STAR) if found.exists()]
        if not there:
            raise InputError(
                f"{place}: no {W_STAR} in it, nor in its folder supernet/",
                hint=f"`deploynas train --out {place}` makes one",
            )
        path = there[0]
    if not path.exists():
        raise InputError(f"{path}: no such file", hint="`deploynas train` writes one; give its --out folder")
    if CheckpointRecord.read(path).role_in(path) == "w_h":
        raise InputError(
            f"{path} is w_h, which only its heaviest network was trained in; expected w*",
            hint=f"{path.with_name(W_STAR)}, or the folder of the run",
        )
    return path


def open_supernet(source: str | Path | RunFolder, data: str | Data | None = None) -> TrainedSupernet:
    """Load w* and its data, by default those it was trained on; other validation images are refused."""
    path = find_supernet(source)
    checkpoint = load_checkpoint(path)
    if not isinstance(checkpoint.model, Supernet):
        raise InputError(f"{path} holds one network, expected a supernet", hint=f"`deploynas train` writes {W_STAR}")
    record = CheckpointRecord.of(checkpoint)
    text = data or record.data_text(path.parent)
    if text is None:
        raise InputError(f"{path} does not say what it was trained on", hint="give `--data`")
    loaded = record.normalised(_load_for(text, checkpoint.space, record) if isinstance(text, str) else text)
    trained_on = record.data
    if trained_on and trained_on.split_hash not in (None, loaded.describe().split_hash):
        raise _other_images(loaded.name, trained_on.name, record)
    return TrainedSupernet(path, checkpoint, loaded)


def _load_for(text: str, space: Space, record: CheckpointRecord) -> Data:
    """Data of other classes do not fit; an imported supernet can get a classifier for them."""
    loaded = load_data(text, space, any_classes=record.imported is not None)
    if record.imported and len(loaded.classes) != space.classes:
        raise InputError(
            f"`{text}` has {len(loaded.classes)} classes, the imported supernet {space.classes}",
            hint=f"{_import_again(record.imported)} fits a new classifier to them",
        )
    return loaded


def _import_again(imported: ImportRecord) -> str:
    return f"`deploynas import {imported.format} {imported.file.path} --out RUN --data DATA`"


def _other_images(given: str, known: str, record: CheckpointRecord) -> InputError:
    if record.imported:
        return InputError(
            f"`{given}` is not the data that the supernet was imported with: its statistics are of other images",
            hint=f"it was imported with `{known}`; {_import_again(record.imported)} measures other ones",
        )
    return InputError(
        f"`{given}` is not split as when the supernet was trained: it may have learned these validation images",
        hint=f"it was trained on `{known}`",
    )


class SupernetSource:
    """A supernet that is loaded when it is first needed, and only then."""

    def __init__(self, path: Path, data: str | Data | None, opened: TrainedSupernet | None = None) -> None:
        self.path, self._data, self._opened = path, data, opened

    def open(self) -> TrainedSupernet:
        if self._opened is None:
            self._opened = open_supernet(self.path, self._data)
        return self._opened
