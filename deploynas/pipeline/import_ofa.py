"""A supernet that Once-for-all's authors trained as the supernet of a run, so that every later step finds it there.

w* gets the weights of the file, and w_h, who teaches, the same: its heaviest network. With images at hand, statistics
of batch norm are measured on them, since those of a file are of no sub-network in particular: along random paths for
w*, along the heaviest for w_h. Images of other classes get a classifier of their own, fitted to the features.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import yaml

from deploynas.accuracy.oneshot import best_device
from deploynas.files import content_hash, parse_json, sha256_of, write_bytes
from deploynas.one_writer import writing_in
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.step import Inputs, perform
from deploynas.pipeline.supernet import RECALIBRATION_IMAGES
from deploynas.progress import OnProgress, silent
from deploynas.provenance import Origin
from deploynas.space import Space
from deploynas.supernet.checkpoint_file import CheckpointFile
from deploynas.supernet.kernels import KernelRule
from deploynas.supernet.network import Supernet
from deploynas.supernet.new_classes import for_classes, with_classes
from deploynas.supernet.once_for_all import PUBLIC, read_once_for_all
from deploynas.supernet.paths import RandomPaths
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord, ImportRecord, Role, place_beside
from deploynas.training.classifier import fit_classifier
from deploynas.training.data import IMAGENET_MEAN, IMAGENET_STD, Data, Subset, load_data
from deploynas.training.evaluation import accuracy, recalibrate_on_train
from deploynas.training.metrics import FILE as METRICS_FILE
from deploynas.training.recipe import Augmentation
from deploynas.training.state import OtherSettings, read_state, remove_state, require_unchanged

Made = tuple[Supernet, CheckpointRecord]
ROLES: tuple[Role, Role] = ("w_h", "w_star")
CHECKED_IMAGES = 2000  # of the validation part: enough to see that images and classes are those of the weights


@dataclass(frozen=True)
class ImportedRun(RunFolder):
    """The run, and what the two checkpoints of it say."""

    space: Space
    kernel_rule: KernelRule
    w_h_record: CheckpointRecord
    w_star_record: CheckpointRecord
    resumed: bool  # nothing was left to do

    @property
    def imported(self) -> ImportRecord:
        assert self.w_star_record.imported is not None
        return self.w_star_record.imported


def import_ofa(
    path: str | Path,
    out: str | Path,
    data: str | Data | None = None,
    force: bool = False,
    on_progress: OnProgress = silent,
) -> ImportedRun:
    """Make the run `out` of one of Once-for-all's public checkpoints; mistakes are found before anything is written.

    `data` become the data of the run. If they have other classes than the checkpoint, the run's space has them too.
    """
    path, run = Path(path), RunFolder(Path(out))
    supernet = read_once_for_all(path)
    loaded = load_data(data, supernet.space, any_classes=True) if isinstance(data, str) else data
    file = Origin(path=path.name, sha256=sha256_of(path))
    with writing_in(run.path, "import"):
        return _imported(run, file, supernet, loaded, force, on_progress)


def _imported(
    run: RunFolder, file: Origin, supernet: Supernet, loaded: Data | None, force: bool, on_progress: OnProgress
) -> ImportedRun:
    _require_room(run, file, force)
    known = _import_record(run)
    if known and known.recalibrated and loaded is None and not force:
        for weights in (run.w_h, run.w_star):
            require_unchanged(weights)  # an import that was killed may have left one of another
        return _opened(run, resumed=True)  # what was measured is not thrown away for want of images
    step = ImportStep(run, file, supernet, loaded)
    worked = perform(step, run, force, on_progress)
    return _opened(run, resumed=not worked)


def imported_into(run: RunFolder, space: Space) -> str | None:
    """The file that the run's supernet was imported from; None if it was not. One of another space is refused."""
    known = _import_record(run)
    if known is None:
        return None
    space.require_hash(_checkpoint_file(run).space_hash, f"{run.w_star}: its supernet")
    return known.file.path


def _opened(run: RunFolder, resumed: bool) -> ImportedRun:
    file = _checkpoint_file(run)
    w_h, w_star = (CheckpointRecord.read(weights) for weights in (run.w_h, run.w_star))
    return ImportedRun(run.path, Space.from_description(file.space), file.kernel_rule, w_h, w_star, resumed)


def _checkpoint_file(run: RunFolder) -> CheckpointFile:
    return parse_json(run.w_star.with_suffix(".json"), CheckpointFile)


def _import_record(run: RunFolder) -> ImportRecord | None:
    there = run.w_star.with_suffix(".json").exists()
    return CheckpointRecord.read(run.w_star).imported if there else None


def _require_room(run: RunFolder, file: Origin, force: bool) -> None:
    """A trained supernet, or one of another file, is not overwritten unasked; the same one may get other images."""
    weights = [path for path in (run.w_h, run.w_star) if path.with_suffix(".json").exists()]
    known = [CheckpointRecord.read(path).imported for path in weights]
    other = [record for record in known if record is None or record.file.sha256 != file.sha256]
    if not force and (other or read_state(run.supernet)):
        of = f"imported from {other[0].file.path}" if other and other[0] else "trained here"
        raise OtherSettings(f"{run.supernet} holds a supernet that was {of}")


@dataclass(frozen=True)
class ImportStep:
    run: RunFolder
    file: Origin
    supernet: Supernet  # as the file has it
    data: Data | None
    name: str = "import"

    @property
    def space(self) -> Space:
        """That of the file, with the classes of the data."""
        space = self.supernet.space
        return with_classes(space, len(self.data.classes)) if self.data else space

    def inputs(self) -> Inputs:
        return {"checkpoint": self.file.sha256, "data": self.data.content_hash if self.data else "none"}

    def work(self, on_progress: OnProgress) -> None:
        made = self._as_they_are() if self.data is None else self._measured(self.data, on_progress)
        remove_state(self.run.supernet)  # of a training that is replaced
        (self.run.supernet / METRICS_FILE).unlink(missing_ok=True)
        self._write_space()
        for path, (supernet, record) in zip((self.run.w_h, self.run.w_star), made, strict=True):
            supernet.save(path, record.about())

    def _as_they_are(self) -> list[Made]:
        return [(self.supernet, self._record(role)) for role in ROLES]

    def _measured(self, data: Data, on_progress: OnProgress) -> list[Made]:
        """With statistics and, for new classes, a classifier of the training images."""
        space, made = self.space, list[Made]()
        new = space.classes != self.supernet.space.classes
        for i, role in enumerate(ROLES):
            record = self._record(role)
            batches = Batches(record.normalised(data), space, Augmentation(), best_device())
            supernet = for_classes(self.supernet, space.classes) if new else copy.deepcopy(self.supernet)
            supernet.to(batches.device)
            paths = space.heaviest() if role == "w_h" else RandomPaths(space, np.random.default_rng(0))
            first, second, third = (_share(on_progress, i / 2 + part / 6, 1 / 6, role) for part in range(3))
            recalibrate_on_train(supernet, batches, RECALIBRATION_IMAGES, paths, first)
            if new:
                fit_classifier(supernet, batches, paths, second)
            record.validation_accuracy = accuracy(supernet, batches, _checked(data), paths, third)
            made.append((supernet.cpu(), record))
        return made

    def outputs(self) -> Sequence[Path]:
        weights = (self.run.w_h, self.run.w_star)
        return [*weights, *(path.with_suffix(".json") for path in weights)]

    def _record(self, role: Role) -> CheckpointRecord:
        data = self.data
        imported = ImportRecord(
            format="ofa",
            file=self.file,
            mean=list(IMAGENET_MEAN),
            std=list(IMAGENET_STD),
            recalibrated=data is not None,
            new_classifier=self.space.classes != self.supernet.space.classes,
            checked_images=len(_checked(data)) if data else 0,
        )
        record = CheckpointRecord(role=role, fingerprint=content_hash(self.inputs()), imported=imported)
        if data is not None:
            record.data = record.normalised(data).describe()
            record.data_place = place_beside(data.place, self.run.supernet)
        return record

    def _write_space(self) -> None:
        """A file of the space where it is none of the presets: `profile --space` wants one."""
        self.run.space_file.unlink(missing_ok=True)
        presets = {name: Space.load(name) for name in PUBLIC}
        if self.space in presets.values():
            return
        preset = next(name for name, space in presets.items() if with_classes(space, self.space.classes) == self.space)
        text = (resources.files("deploynas.space.presets") / f"{preset}.yaml").read_text()
        document = {**yaml.safe_load(text), "name": self.space.name, "classes": self.space.classes}
        self.run.path.mkdir(parents=True, exist_ok=True)
        write_bytes(
            self.run.space_file, yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120).encode()
        )


def _share(on_progress: OnProgress, start: float, width: float, role: Role) -> OnProgress:
    """A part of the bar for a part of the work."""
    return lambda done, what: on_progress(start + width * done, f"{role}: {what}")


def _checked(data: Data) -> Subset:
    """At most `CHECKED_IMAGES` for validation, evenly spread, so of all classes alike."""
    validation = data.validation
    chosen = np.linspace(0, len(validation) - 1, min(CHECKED_IMAGES, len(validation))).round().astype(int)
    return Subset(validation.images, validation.rows[chosen])
