"""What a training-free score is: a number of one untrained network on one batch, which ranks it among others.

Every score sees the same function, so that what is proven about them holds between them: the network as it is at
initialisation, its batch-norm statistics those of the batch, held fixed (`fixed_statistics`). So an image's output
depends on that image alone, and gradients can be taken image by image. Only `synflow` goes without normalisation.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from deploynas.accuracy.registry import require_known
from deploynas.accuracy.training_free.registry import TRAINING_FREE_SCORES, Reading


@dataclass(frozen=True)
class ScoringBatch:
    """Images as the network takes them, and their labels; either may be random."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def first(self, images: int) -> ScoringBatch:
        return ScoringBatch(self.images[:images], self.labels[:images])

    @classmethod
    def random(cls, images: int, shape: tuple[int, int, int], classes: int, seed: int = 0) -> ScoringBatch:
        """Standard normal pixels and uniform labels."""
        generator = torch.Generator().manual_seed(seed)
        pixels = torch.randn(images, *shape, generator=generator)
        return cls(pixels, torch.randint(classes, (images,), generator=generator))

    @classmethod
    def joined(cls, pieces: Iterable[tuple[Tensor, Tensor]]) -> ScoringBatch:
        """One batch of the images and labels of several."""
        images, labels = zip(*pieces, strict=True)
        return cls(torch.cat(images).contiguous(), torch.cat(labels))


class Score(Protocol):
    """A score by its definition, and the same on the scale that contributions of decisions are fitted to."""

    reading: Reading

    def value(self, network: nn.Module, batch: ScoringBatch) -> float:
        """As it is defined, of a network in evaluation mode whose statistics were fixed (`fixed_statistics`)."""
        ...

    def rank(self, value: float) -> float:
        """The same as a number of which more is better, in which what decisions are worth nearly adds up."""
        ...


def load_score(name: str) -> Score:
    require_known("training-free score", name, TRAINING_FREE_SCORES)
    module, kind = TRAINING_FREE_SCORES[name].split(":")
    return cast(Score, getattr(importlib.import_module(module), kind)())
