"""A space and a recipe small enough to train within a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_spaces import MINI

from deploynas.space import Space
from deploynas.training.recipe import Recipe

SETTINGS = [
    "w_h.epochs=1",
    "w_h.batch=500",
    "w_h.warmup_epochs=0",
    "w_star.epochs=1",
    "w_star.batch=500",
    "w_star.warmup_epochs=0",
    "recalibration_images=500",
    "report_networks=2",
]


@pytest.fixture(autouse=True)
def one_thread():
    """The networks are so small that a second thread only costs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def space_file(tmp_path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(MINI)
    return path


@pytest.fixture
def space(space_file) -> Space:
    return Space.load(space_file)


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.load("fashion", SETTINGS)
