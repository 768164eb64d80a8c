"""A teacher that answers from memory. A frozen network says the same about an image every time, so where
augmentation does no more than mirror, every answer of a long run is known after the first two.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import torch
from torch import Tensor, nn

from deploynas.training.batches import Batches

WORTH_IT = 4  # epochs: remembering costs two visits of every image
MOST = 200_000  # images


class Remembering(nn.Module):
    """Looks up a batch if it knows all of its images, and asks the teacher if not."""

    def __init__(self, teacher: nn.Module, batches: Batches) -> None:
        super().__init__()
        self.teacher = teacher
        self._row: dict[bytes, int] = {}
        answers, count = [], 0
        with torch.no_grad():
            for images, _ in batches.evaluation(batches.data.train):
                for seen in (images, images.flip(3)):
                    self._row.update((key, count + i) for i, key in enumerate(_keys(seen)))
                    answers.append(teacher(seen))
                    count += len(seen)
        self._answers = torch.cat(answers)

    def forward(self, images: Tensor) -> Tensor:
        rows = [self._row.get(key, -1) for key in _keys(images)]
        return self.teacher(images) if min(rows) < 0 else self._answers[rows]


def remembering(teacher: nn.Module, batches: Batches, epochs: int) -> nn.Module:
    """The same teacher, with a memory where that saves time."""
    few = len(batches.data.train) <= MOST
    worth_it = epochs >= WORTH_IT and few and batches.only_mirrors and batches.device.type == "cpu"
    return Remembering(teacher, batches) if worth_it else teacher


def _keys(images: Tensor) -> Iterator[bytes]:
    for row in images.permute(0, 2, 3, 1).contiguous().numpy():
        yield blake2b(row, digest_size=16).digest()
