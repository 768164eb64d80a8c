"""Makes the embedded data set: `python -m deploynas.training.make_fashion_mini FOLDER_OF_IDX_FILES`.

10,000 images of Fashion-MNIST's official training set (its test set stays unseen), drawn class by class
with a fixed seed: 800 a class to train on, 200 a class to validate on. The idx files are Debian's
`dataset-fashion-mnist` (in /usr/share/datasets/fashion-mnist) or Zalando's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from deploynas.training.idx import read_idx

TRAIN_PER_CLASS, VALIDATION_PER_CLASS, SEED = 800, 200, 2017
TARGET = Path(__file__).with_name("embedded") / "fashion-mini.npz"


def make(folder: Path, target: Path = TARGET) -> None:
    images = read_idx(folder / "train-images-idx3-ubyte.gz")
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")
    rng = np.random.default_rng(SEED)
    train, validation = [], []
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        train.append(members[:TRAIN_PER_CLASS])
        validation.append(members[TRAIN_PER_CLASS : TRAIN_PER_CLASS + VALIDATION_PER_CLASS])
    order = {"train": rng.permutation(np.concatenate(train)), "validation": np.concatenate(validation)}
    arrays = {f"{part}_images": images[rows] for part, rows in order.items()}
    arrays |= {f"{part}_labels": labels[rows] for part, rows in order.items()}
    np.savez_compressed(target, **arrays)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
