"""A trained supernet as an input of other commands: with its validation images, and some of its training ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from deploynas.accuracy.oneshot import OneShot, Stream
from deploynas.errors import InputError
from deploynas.files import content_hash, parse_json
from deploynas.supernet.checkpoint import CheckpointFile, load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.training.batches import Batches
from deploynas.training.data import Part, load_data
from deploynas.training.recipe import Augmentation

BATCH = 200  # images at once: of more, the wide middle of a block no longer fits a cache
CALIBRATION_IMAGES = 4000


@dataclass(frozen=True)
class OpenedSupernet:
    run: Path  # folder
    measure: OneShot
    training: Stream  # images to recalibrate batch norm on
    about: dict[str, str]  # weights and split: what measurements of this supernet go by

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
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = checkpoint.model.to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = Batches(loaded, checkpoint.space, Augmentation(), device)
    chosen = torch.randperm(len(loaded.train), generator=torch.Generator().manual_seed(0))[:CALIBRATION_IMAGES]
    training = Part(loaded.train.images, loaded.train.rows[chosen.sort().values])
    weights = parse_json(path.with_suffix(".json"), CheckpointFile).weights_sha256
    return OpenedSupernet(
        path.parent,
        OneShot(model, lambda: batches.evaluation(loaded.validation, BATCH), len(loaded.validation)),
        lambda: batches.evaluation(training, BATCH),
        {"weights_sha256": weights, "data": name, "split_hash": split},
    )
