"""A trained supernet as an input of other commands: with its validation images, and training ones to recalibrate on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploynas.accuracy.oneshot import SupernetMeasure, best_device
from deploynas.errors import InputError
from deploynas.files import content_hash, parse_json
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.checkpoint_file import CheckpointFile
from deploynas.supernet.network import Supernet
from deploynas.training.batches import Batches
from deploynas.training.data import load_data
from deploynas.training.evaluation import recalibrate_on_train
from deploynas.training.recipe import Augmentation

BATCH = 200  # images at once: of more, the wide middle of a block no longer fits a cache
CALIBRATION_IMAGES = 4000


@dataclass(frozen=True)
class OpenedSupernet:
    run: Path  # folder
    measure: SupernetMeasure
    batches: Batches
    about: dict[str, str]  # weights and split: what measurements of this supernet go by

    def accuracy_alone(self, architecture: Architecture) -> tuple[float, float]:
        """One-shot accuracy of a sub-network, batch norm recalibrated on training images, and its standard error."""
        space = self.measure.supernet.space
        scores = self.measure.alone(
            space.architecture(architecture.choices),
            lambda network: recalibrate_on_train(network, self.batches, CALIBRATION_IMAGES),
        )
        return float(scores.right.mean()), float(scores.right.std(ddof=1)) / len(scores.right) ** 0.5

    def samples_folder(self, parent: Path | None = None) -> Path:
        """Apart from the measurements of any other supernet or data."""
        return (parent or self.run / "samples") / content_hash(self.about)


def open_one_shot(supernet: Path, data: str | None = None) -> OpenedSupernet:
    """`supernet` is the folder of a run, or its w_star.safetensors; data default to what it was trained on."""
    path = supernet / "w_star.safetensors" if supernet.is_dir() else supernet
    checkpoint = load_checkpoint(path)
    if not isinstance(checkpoint.model, Supernet):
        raise InputError(f"{path} holds one network, expected a supernet", hint="`deploynas train` writes w_star")
    trained_on = checkpoint.about.get("data", {})
    name = data or trained_on.get("name")
    if name is None:
        raise InputError(f"{path} does not say what it was trained on", hint="give `--data`")
    loaded = load_data(name, checkpoint.space)
    split = loaded.describe()["split_hash"]
    if trained_on.get("split_hash") not in (None, split):
        raise InputError(
            f"`{name}` is not split as when the supernet was trained: it may have learned these validation images",
            hint=f"it was trained on `{trained_on.get('name')}`",
        )
    device = best_device()
    batches = Batches(loaded, checkpoint.space, Augmentation(), device)
    weights = parse_json(path.with_suffix(".json"), CheckpointFile).weights_sha256
    return OpenedSupernet(
        path.parent,
        SupernetMeasure(
            checkpoint.model.to(device), lambda: batches.evaluation(loaded.validation, BATCH), len(loaded.validation)
        ),
        batches,
        {"weights_sha256": weights, "data": name, "split_hash": split},
    )
