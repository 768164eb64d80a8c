"""Makes the embedded data set: `python -m deploynas.training.make_fashion_mini FOLDER_OF_IDX_FILES`.

Images of Fashion-MNIST, drawn class by class with a fixed seed. Of its official training set: 800 of each class
to train on and 400 to validate on. Of its official test set: 500 of each class, for the accuracy that is quoted
at the end. The idx files are Debian's `dataset-fashion-mnist` (in /usr/share/datasets/fashion-mnist) or Zalando's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from deploynas.training.idx import read_idx

TRAIN_PER_CLASS, VALIDATION_PER_CLASS, TEST_PER_CLASS, SEED = 800, 400, 500, 2017
TARGET = Path(__file__).with_name("embedded") / "fashion-mini.npz"


def make(folder: Path, target: Path = TARGET) -> None:
    rng = np.random.default_rng(SEED)
    images, labels = _official(folder, "train")
    drawn = [_permuted(labels, label, rng) for label in range(10)]
    until = TRAIN_PER_CLASS + VALIDATION_PER_CLASS
    train = rng.permutation(np.concatenate([members[:TRAIN_PER_CLASS] for members in drawn]))
    validation = np.concatenate([members[TRAIN_PER_CLASS:until] for members in drawn])
    test_images, test_labels = _official(folder, "t10k")
    test = np.concatenate([_permuted(test_labels, label, rng)[:TEST_PER_CLASS] for label in range(10)])
    np.savez_compressed(
        target,
        train_images=images[train],
        train_labels=labels[train],
        validation_images=images[validation],
        validation_labels=labels[validation],
        test_images=test_images[test],
        test_labels=test_labels[test],
    )


def _official(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    return read_idx(folder / f"{part}-images-idx3-ubyte.gz"), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")


def _permuted(labels: np.ndarray, label: int, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.flatnonzero(labels == label))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
