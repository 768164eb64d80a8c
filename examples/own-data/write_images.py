"""Lay out a folder data set from the images that deploynas ships: one folder per class, one PNG file per image.

    python write_images.py FOLDER [--per-class 100] [--classes Bag Sandal Sneaker]

It stands in for your own images, and shows the layout that `--data folder:FOLDER` reads.
"""

from __future__ import annotations

import argparse
from importlib import resources
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the embedded images as a folder data set.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--per-class", type=int, default=100, help="images per class, at most 800 (default: 100)")
    parser.add_argument("--classes", nargs="+", choices=CLASSES, default=CLASSES, metavar="CLASS", help="default: all")
    options = parser.parse_args()
    embedded = resources.files("deploynas.training") / "embedded" / "fashion-mini.npz"
    with embedded.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        images, labels = arrays["train_images"], arrays["train_labels"]
    for name in options.classes:
        folder = options.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, pixels in enumerate(images[labels == CLASSES.index(name)][: options.per_class]):
            Image.fromarray(pixels).save(folder / f"{number}.png")
    print(f"wrote {options.folder}: {', '.join(options.classes)}")


if __name__ == "__main__":
    main()
