from __future__ import annotations

import torch
from torch import Tensor, nn

from deploynas.space import Space
from deploynas.training.batches import Batches, BatchShare
from deploynas.training.data import load_data
from deploynas.training.memory import Remembering, remembering
from deploynas.training.recipe import Augmentation


class Teacher(nn.Module):
    """Says something about an image that depends on every pixel's place; counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.randn(28 * 28, 10, generator=torch.Generator().manual_seed(0))
        self.asked = 0

    def forward(self, images: Tensor) -> Tensor:
        self.asked += 1
        return images.flatten(1) @ self.weight


def batches(**augmentation: object) -> Batches:
    space = Space.load("fashion")
    return Batches(load_data("fashion-mini", space), space, Augmentation.model_validate(augmentation))


def test_training_images_are_answered_from_memory_and_others_are_not() -> None:
    source, teacher = batches(flip=0.5), Teacher()
    remembered = remembering(teacher, source, epochs=10)
    asked = teacher.asked
    for images, _ in source.train(64, 0, 5, seed=1, share=BatchShare()):
        torch.testing.assert_close(remembered(images), images.flatten(1) @ teacher.weight, rtol=1e-4, atol=1e-4)
    assert teacher.asked == asked
    strange = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(remembered(strange), strange.flatten(1) @ teacher.weight)
    assert teacher.asked == asked + 1


def test_there_is_no_memory_where_images_do_not_come_back() -> None:
    teacher = Teacher()
    assert isinstance(remembering(teacher, batches(), epochs=10), Remembering)
    assert remembering(teacher, batches(), epochs=2) is teacher
    for changed in ({"crop_padding": 2}, {"random_erasing": 0.1}, {"auto_augment": "rand-m9"}):
        assert remembering(teacher, batches(**changed), epochs=10) is teacher
