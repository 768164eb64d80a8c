"""Labelled images in subsets: train, validation (the 20 % that estimation and search share), test if there is one.

`fashion-mini` is embedded. `fashion-mnist[:DIR]`, `cifar10:DIR`, `folder:DIR` and timm's own names
(`torch/cifar100:DIR`, `hfds/…`) are read from disk. Where a set comes without a validation part, a fifth of
its training part becomes one, always the same: the seed is fixed, not the run's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.provenance import DataRecord
from deploynas.space import Space
from deploynas.training import sources
from deploynas.training.sources import Images, Source

VALIDATION_FRACTION, SPLIT_SEED = 0.2, 0
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Subset:
    """Some of the images of a source, by index."""

    images: Images
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Data:
    """A data set ready for a space: parts, class names, and the mean and deviation that normalise it."""

    name: str
    classes: tuple[str, ...]
    train: Subset
    validation: Subset
    test: Subset | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    place: str = ""  # the folder it was read from, where it has one

    def describe(self) -> DataRecord:
        return DataRecord(
            name=self.name,
            classes=list(self.classes),
            train_images=len(self.train),
            validation_images=len(self.validation),
            test_images=len(self.test) if self.test else 0,
            split_hash=_hash_rows(self.train.rows, self.validation.rows),
            mean=list(self.mean),
            std=list(self.std),
        )

    @cached_property
    def content_hash(self) -> str:
        """Changes with the images: their pixels where they are in memory, the names and sizes of files where not."""
        images = {id(s.images): s.images for s in (self.train, self.validation, self.test) if s is not None}
        return content_hash([self.describe().model_dump(), [i.content_hash() for i in images.values()]])


def load_data(text: str, space: Space, any_classes: bool = False) -> Data:
    """Read a data set, `NAME` or `NAME:FOLDER`, and check that it fits the space, before anything is trained."""
    source = _source(text)
    _require_fit(text, space, source, any_classes)
    return _parts(text, source)


def _source(text: str) -> Source:
    kind, _, place = text.partition(":")
    if kind == "fashion-mini":
        return sources.fashion_mini()
    if kind == "fashion-mnist":
        folder = Path(place) if place else sources.DEBIAN_FASHION_MNIST
        return sources.fashion_mnist(folder)
    if kind == "cifar10":
        return sources.cifar10(_folder(text, place))
    if kind == "folder":
        return sources.image_folder(_folder(text, place))
    if "/" in kind:
        return sources.timm_dataset(kind, place)
    raise InputError(
        f"no data set `{text}`",
        hint="fashion-mini, fashion-mnist[:DIR], cifar10:DIR, folder:DIR, or a timm name: torch/cifar100:DIR",
    )


def _parts(text: str, source: Source) -> Data:
    if source.validation is not None:
        train, validation = _whole(source.train), _whole(source.validation)
    else:
        train, validation = _split(source.train)
    test = _whole(source.test) if source.test is not None else None
    mean, std = _moments(source.train, train.rows)
    name, _, place = text.partition(":")
    return Data(name, source.classes, train, validation, test, mean, std, place)


def _require_fit(name: str, space: Space, source: Source, any_classes: bool) -> None:
    mistakes, pixels = [], source.train.pixels
    if len(source.classes) != space.classes and not any_classes:
        mistakes.append(f"{len(source.classes)} classes, the space has {space.classes}")
    wanted = (space.in_channels, space.height, space.width)
    if pixels is not None and tuple(pixels.shape[1:]) != wanted:
        mistakes.append(f"images of {_size(tuple(pixels.shape[1:]))}, the space takes {_size(wanted)}")
    if pixels is None and space.in_channels not in (1, 3):
        mistakes.append(f"grey or colour images, the space takes {space.in_channels} channels")
    if mistakes:
        raise InputError(
            f"`{name}` does not fit space `{space.name}`: it has {'; and '.join(mistakes)}",
            hint="images of any size are read from files: `folder:DIR`"
            if any_classes
            else "copy the space's YAML file and change `input` and `classes` there",
        )


def _size(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{height}x{width} with {channels} channel{'s' if channels > 1 else ''}"


def _split(images: Images) -> tuple[Subset, Subset]:
    """80/20, class by class, so that both parts have the same mix."""
    rng = np.random.default_rng(SPLIT_SEED)
    labels = images.labels.numpy()
    train, validation = [], []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cut = round(len(rows) * VALIDATION_FRACTION)
        validation.append(rows[:cut])
        train.append(rows[cut:])
    if not len(np.concatenate(validation)):
        raise InputError("too few images to keep a fifth for validation", hint="at least 3 images a class")
    train_rows, validation_rows = (torch.from_numpy(np.sort(np.concatenate(p))) for p in (train, validation))
    return Subset(images, train_rows), Subset(images, validation_rows)


def _whole(images: Images) -> Subset:
    return Subset(images, torch.arange(len(images)))


def _moments(images: Images, rows: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of the training pixels if they are in memory; ImageNet's for files."""
    if images.pixels is None:
        return IMAGENET_MEAN, IMAGENET_STD
    pixels = images.pixels[rows].to(torch.float64) / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    return tuple(round(float(m), 4) for m in mean), tuple(round(float(s), 4) for s in std)


def _folder(name: str, place: str) -> Path:
    if not place:
        raise InputError(f"`{name}` needs a folder", hint=f"--data {name}:DIR")
    if not Path(place).is_dir():
        raise InputError(f"{place}: no such folder")
    return Path(place)


def _hash_rows(*parts: Tensor) -> str:
    digest = hashlib.sha256()
    for rows in parts:
        digest.update(np.ascontiguousarray(rows.numpy(), dtype="<i8").tobytes() + b"|")
    return digest.hexdigest()[:16]
