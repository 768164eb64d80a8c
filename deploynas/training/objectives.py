"""What the phases minimise: label-smoothed cross entropy, along random paths, with or without a teacher."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from timm.loss import LabelSmoothingCrossEntropy
from torch import Tensor, nn

from deploynas.space import Architecture, Space
from deploynas.supernet.paths import as_paths
from deploynas.training.batches import BatchShare, mix_seed
from deploynas.training.recipe import Distillation, OneShotSchedule


@dataclass(frozen=True)
class Plain:
    """The network as it is (a supernet without paths is its heaviest network)."""

    smoothing: float
    teacher: nn.Module | None = None
    distillation: Distillation | None = None

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        logits = model(images)
        loss = distilled_loss(logits, images, labels, self.smoothing, self.teacher, self.distillation)
        return loss, logits


@dataclass(frozen=True)
class OneShotPaths:
    """A random sub-network for every image, or one for the whole batch, drawn as everywhere (`Decisions.draw`).

    Between the two slices of a sandwich (Yu and Huang 2019): a share of the images takes the heaviest network, an equal
    share the smallest. An input size that is open is drawn for the whole batch.
    """

    space: Space
    schedule: OneShotSchedule
    seed: int
    share: BatchShare
    teacher: nn.Module | None = None

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(mix_seed(self.seed, step, 5))
        if self.schedule.paths == "single":
            logits = model(images, self._network(rng))
        else:
            # drawn for all processes together; a batch may be short of images that could not be read
            rows = self._rows(rng)[self.share.rows(self.schedule.batch)]
            logits = model(images, as_paths(rows[: len(images)]))
        smoothing, distillation = self.schedule.label_smoothing, self.schedule.distillation
        return distilled_loss(logits, images, labels, smoothing, self.teacher, distillation), logits

    def _network(self, rng: np.random.Generator) -> Architecture:
        network, place = self.space.sample(rng), rng.random()
        if place < self.schedule.sandwich:
            return self.space.heaviest()
        return self.space.smallest() if place < 2 * self.schedule.sandwich else network

    def _rows(self, rng: np.random.Generator) -> np.ndarray:
        """Of the whole batch; its images come in random order, and every process gets some of each kind."""
        rows = self.space.decisions.draw(self.schedule.batch, rng)
        slices = round(self.schedule.sandwich * self.schedule.batch)
        places = rng.permutation(self.schedule.batch)
        rows[places[:slices]] = self.space.rows([self.space.heaviest()])
        rows[places[slices : 2 * slices]] = self.space.rows([self.space.smallest()])
        if self.space.sizes:  # one for the batch: normalisation compares images of one size
            rows[:, -1] = rng.integers(len(self.space.sizes))
        return rows


def distilled_loss(
    logits: Tensor,
    images: Tensor,
    labels: Tensor,
    smoothing: float,
    teacher: nn.Module | None,
    distillation: Distillation | None,
) -> Tensor:
    """(1 - w) * cross entropy + w * T^2 * KL(teacher || student) at temperature T."""
    loss = LabelSmoothingCrossEntropy(smoothing)(logits, labels)
    if teacher is None or distillation is None or not distillation.weight:
        return loss
    with torch.no_grad():
        taught = teacher(images)
    t = distillation.temperature
    divergence = F.kl_div(
        F.log_softmax(logits / t, 1), F.log_softmax(taught / t, 1), log_target=True, reduction="batchmean"
    )
    return (1 - distillation.weight) * loss + distillation.weight * t**2 * divergence
