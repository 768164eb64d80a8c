"""Test images decide nothing: with other ones, every step leaves the same weights, and only the last figure differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from quick_settings import SETTINGS

from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.training.data import Data, load_data
from deploynas.training.finetune import FineTuningTask, finetune
from deploynas.training.oneshot import train_supernet
from deploynas.training.recipe import Recipe
from deploynas.training.sources import PixelImages


@pytest.fixture
def data(space: Space) -> Data:
    return load_data("fashion-mini", space)


def with_black_test_images(data: Data) -> Data:
    assert data.test is not None and isinstance(data.test.images, PixelImages)
    black = replace(data.test.images, pixels=torch.zeros_like(data.test.images.pixels))
    return replace(data, test=replace(data.test, images=black))


def test_only_the_accuracy_that_is_quoted_depends_on_them(space: Space, data: Data, tmp_path: Path) -> None:
    recipe = Recipe.load("fashion", [*SETTINGS, "finetune.epochs=1", "finetune.batch=1000"])
    tuned = []
    for name, own in (("true", data), ("black", with_black_test_images(data))):
        train_supernet(space, own, tmp_path / name, recipe)
        supernet = load_checkpoint(tmp_path / name / "w_star.safetensors")
        task = FineTuningTask(supernet, space.heaviest(), own, recipe.changed(["finetune.distillation.weight=0"]))
        tuned.append(finetune(task, tmp_path / name / "tuned"))
    files = ("w_h.safetensors", "w_star.safetensors", "tuned/network.safetensors")
    for file in files:
        assert (tmp_path / "true" / file).read_bytes() == (tmp_path / "black" / file).read_bytes()
    true, black = tuned
    assert true.validation_accuracy == black.validation_accuracy
    assert black.test_accuracy == pytest.approx(0.1)  # one answer for all images: right for one class of ten
    assert true.test_accuracy is not None and true.test_accuracy != black.test_accuracy
