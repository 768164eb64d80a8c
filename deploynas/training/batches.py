"""Batches in an order that depends only on seed, phase and step, never on what ran before.

So training resumes at any step exactly, and two processes see together what one would see alone: every
process draws the randomness of the whole batch and keeps its own rows. Images in memory are augmented as
whole batches; files, and anything that asks for AutoAugment, go image by image through timm's transforms in
a DataLoader.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import methodcaller

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, UnidentifiedImageError
from timm.data import RandomResizedCropAndInterpolation
from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
from timm.data.random_erasing import RandomErasing
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deploynas.errors import DeployNASError
from deploynas.progress import OnProgress
from deploynas.space import Architecture, Space
from deploynas.supernet.input_size import resized
from deploynas.training.data import Data, Subset
from deploynas.training.recipe import Augmentation

# what PIL and the decoders beneath it raise for a damaged or missing file
UNREADABLE = (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError)
# of a batch that is evaluated: at 224 pixels, 100 images at once took 1.1 to 1.5 times as long as 32, and more memory
PIXELS_AT_ONCE = 32 * 224 * 224


@dataclass(frozen=True)
class BatchShare:
    """Which of the equal parts of every batch is ours (one process: all of it)."""

    rank: int = 0
    world: int = 1

    def rows(self, batch: int) -> slice:
        size = batch // self.world
        return slice(self.rank * size, (self.rank + 1) * size)


@dataclass
class Batches:
    """Training and evaluation batches of one data set for one space, on one device."""

    data: Data
    space: Space
    augmentation: Augmentation
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    workers: int = 0
    skipped: set[str] = field(default_factory=set)  # files that could not be read

    def at_the_size_of(self, architecture: Architecture) -> Batches:
        """The same images as a network on its own takes them."""
        return replace(self, space=architecture.at_its_size.space)

    @property
    def only_mirrors(self) -> bool:
        """Whether training images are those of the data set, or their mirror images, and nothing else."""
        augmentation = self.augmentation
        changed = augmentation.crop_padding or augmentation.random_erasing or augmentation.auto_augment is not None
        return self.data.train.images.pixels is not None and not changed

    def steps_per_epoch(self, batch: int) -> int:
        return max(1, len(self.data.train) // batch)

    def train(
        self, batch: int, first_step: int, last_step: int, seed: int, share: BatchShare
    ) -> Iterator[LabelledImages]:
        """Steps first_step..last_step-1 of training; the images of an epoch are a permutation of them all."""
        subset, per_epoch = self.data.train, self.steps_per_epoch(batch)
        drawn = _StepImages(subset, batch, per_epoch, seed, share)
        steps = range(first_step, last_step)
        if subset.images.pixels is not None and self.augmentation.auto_augment is None:
            yield from (self._in_memory(drawn, step) for step in steps)
            return
        loader = DataLoader(
            _Files(subset, _train_transform(self.data, self.space, self.augmentation)),
            batch_sampler=_Tickets(drawn, steps),
            num_workers=min(self.workers, os.cpu_count() or 1),  # more only wait for each other
            collate_fn=_collate,
        )
        for images, labels, unreadable in loader:
            yield self._checked(images, labels, unreadable)

    def evaluation(self, subset: Subset, batch: int = 500) -> Iterator[LabelledImages]:
        """All images of a subset in order, without augmentation; fewer at once where they are large."""
        batch = max(1, min(batch, PIXELS_AT_ONCE // (self.space.height * self.space.width)))
        if subset.images.pixels is not None:
            for rows in subset.rows.split(batch):
                yield self._normalised(subset.images.pixels[rows]), subset.images.labels[rows].to(self.device)
            return
        tickets = [[(int(row), 0) for row in rows] for rows in subset.rows.split(batch)]
        loader = DataLoader(
            _Files(subset, _evaluation_transform(self.data, self.space)),
            batch_sampler=tickets,
            num_workers=min(self.workers, os.cpu_count() or 1),  # more only wait for each other
            collate_fn=_collate,
        )
        for images, labels, unreadable in loader:
            yield self._checked(images, labels, unreadable)

    def watched(self, subset: Subset, on_progress: OnProgress, what: str) -> Iterator[LabelledImages]:
        """`evaluation`, with a word after every batch about how far it is."""
        seen = 0
        for images, labels in self.evaluation(subset):
            yield images, labels
            seen += len(labels)
            on_progress(min(1.0, seen / len(subset)), f"{what}, {seen} of {len(subset)} images")

    def _in_memory(self, drawn: _StepImages, step: int) -> LabelledImages:
        rows = drawn.rows(step)
        generator = torch.Generator().manual_seed(drawn.batch_seed(step))
        own = drawn.share.rows(drawn.batch)
        subset = drawn.subset
        assert subset.images.pixels is not None
        x = _shift_and_flip(subset.images.pixels[rows[own]], self.augmentation, generator, drawn.batch, own)
        x = self._normalised(x)
        if self.augmentation.random_erasing:
            x = _erase(x, self.augmentation, drawn.batch_seed(step) + drawn.share.rank)
        return x, subset.images.labels[rows[own]].to(self.device)

    def _normalised(self, pixels: Tensor) -> Tensor:
        mean = torch.tensor(self.data.mean, device=self.device).view(-1, 1, 1)
        std = torch.tensor(self.data.std, device=self.device).view(-1, 1, 1)
        x = resized(pixels.to(self.device), self.space).float().div_(255).sub_(mean).div_(std)
        return x.contiguous(memory_format=torch.channels_last)

    def _checked(self, images: Tensor | None, labels: Tensor, unreadable: list[str]) -> LabelledImages:
        self.skipped.update(unreadable)
        if images is None:
            raise DeployNASError(
                f"none of the {len(unreadable)} images of a batch can be read, the first is {unreadable[0]}",
                hint="check the disk, or the folder given with --data",
            )
        return images.to(self.device, memory_format=torch.channels_last), labels.to(self.device)


LabelledImages = tuple[Tensor, Tensor]  # normalised images in channels-last order, labels


@dataclass(frozen=True)
class _StepImages:
    """Which images step k sees, and the seed of what happens to them."""

    subset: Subset
    batch: int
    per_epoch: int
    seed: int
    share: BatchShare

    def rows(self, step: int) -> Tensor:
        epoch, place = divmod(step, self.per_epoch)
        order = _order(len(self.subset), self.seed, epoch)
        place *= self.batch
        # a set smaller than one batch is gone round again
        picks = order.repeat(-(-(place + self.batch) // len(order)))[place : place + self.batch]
        return self.subset.rows[picks]

    def batch_seed(self, step: int) -> int:
        return mix_seed(self.seed, step, 2)

    def tickets(self, step: int) -> list[tuple[int, int]]:
        """(image, seed of its augmentation) of our share."""
        own = self.share.rows(self.batch)
        rows = self.rows(step)[own].tolist()
        return [(row, mix_seed(self.batch_seed(step), own.start + i, 3)) for i, row in enumerate(rows)]


class _Tickets:
    """The tickets of many steps, drawn when they are asked for."""

    def __init__(self, drawn: _StepImages, steps: range) -> None:
        self.drawn, self.steps = drawn, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return (self.drawn.tickets(step) for step in self.steps)


@lru_cache(maxsize=2)
def _order(images: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(images, generator=torch.Generator().manual_seed(mix_seed(seed, epoch, 1)))


def mix_seed(seed: int, counter: int, purpose: int) -> int:
    """A 63-bit seed for one purpose and moment, well spread even for neighbouring counters."""
    return int(np.random.SeedSequence((seed, counter, purpose)).generate_state(1, np.uint64)[0]) >> 1


# -- images in memory ---------------------------------------------------------------------------


def _shift_and_flip(
    pixels: Tensor, augmentation: Augmentation, generator: torch.Generator, batch: int, own: slice
) -> Tensor:
    """Random crop with zero padding, and mirror image, all images at once."""
    n, _, height, width = pixels.shape
    flips = torch.rand(batch, generator=generator)[own] < augmentation.flip
    shifts = torch.randint(2 * augmentation.crop_padding + 1, (batch, 2), generator=generator)[own]
    pixels = torch.where(flips[:, None, None, None], pixels.flip(3), pixels)
    if not augmentation.crop_padding:
        return pixels
    padded = F.pad(pixels, [augmentation.crop_padding] * 4)
    rows = shifts[:, :1] + torch.arange(height)
    columns = shifts[:, 1:] + torch.arange(width)
    image = torch.arange(n)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _erase(x: Tensor, augmentation: Augmentation, seed: int) -> Tensor:
    """timm's random erasing; it draws from Python's own generator, which is put back afterwards."""
    state = random.getstate()
    random.seed(seed)
    try:
        return RandomErasing(augmentation.random_erasing, mode="const", device=str(x.device))(x)
    finally:
        random.setstate(state)


# -- images one by one --------------------------------------------------------------------------


class _Files(Dataset):
    """Opens and transforms images, each with its own seed; of the unreadable only the name comes back."""

    def __init__(self, subset: Subset, transform: Callable[[Image.Image], Tensor]) -> None:
        self.subset, self.transform = subset, transform

    def __getitem__(self, ticket: tuple[int, int]) -> tuple[Tensor | None, int, str]:
        row, seed = ticket
        images = self.subset.images
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            return self.transform(images.open(row)), int(images.labels[row]), ""
        except UNREADABLE:
            return None, 0, images.name(row)


def _collate(items: list[tuple[Tensor | None, int, str]]) -> tuple[Tensor | None, Tensor, list[str]]:
    good = [(image, label) for image, label, _ in items if image is not None]
    images = torch.stack([image for image, _ in good]) if good else None
    return (
        images,
        torch.tensor([label for _, label in good]),
        [name for image, _, name in items if image is None],
    )


def _to_tensor(data: Data, space: Space) -> list[Callable]:
    from torchvision import transforms

    mean, std = data.mean, data.std
    if space.in_channels == 1 and len(mean) == 3:
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    return [transforms.ToTensor(), transforms.Normalize(mean, std)]


def _mode(space: Space) -> Callable[[Image.Image], Image.Image]:
    return methodcaller("convert", "L" if space.in_channels == 1 else "RGB")


def _train_transform(data: Data, space: Space, augmentation: Augmentation) -> Callable[[Image.Image], Tensor]:
    from torchvision import transforms

    size = (space.height, space.width)
    steps: list[Callable] = [_mode(space)]
    if data.train.images.pixels is None:
        steps.append(RandomResizedCropAndInterpolation(size, scale=tuple(augmentation.crop_scale)))
    elif augmentation.crop_padding:
        steps.append(transforms.RandomCrop(size, padding=augmentation.crop_padding))
    steps.append(transforms.RandomHorizontalFlip(augmentation.flip))
    if augmentation.auto_augment:
        fill = tuple(round(255 * m) for m in data.mean)
        options = {"img_mean": fill if space.in_channels == 3 else fill[0], "translate_const": min(size) // 4}
        make = rand_augment_transform if augmentation.auto_augment.startswith("rand") else auto_augment_transform
        steps.append(make(augmentation.auto_augment, options))
    steps += _to_tensor(data, space)
    if augmentation.random_erasing:
        steps.append(RandomErasing(augmentation.random_erasing, mode="const", device="cpu"))
    return transforms.Compose(steps)


def _evaluation_transform(data: Data, space: Space) -> Callable[[Image.Image], Tensor]:
    """Shorter side to 8/7 of the input, centre crop: ImageNet's habit."""
    from torchvision import transforms

    steps: list[Callable] = [_mode(space)]
    if data.train.images.pixels is None:
        steps.append(transforms.Resize(round(max(space.height, space.width) * 8 / 7)))
        steps.append(transforms.CenterCrop((space.height, space.width)))
    return transforms.Compose([*steps, *_to_tensor(data, space)])
