"""A space and a recipe small enough to train within a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from quick_settings import SETTINGS
from tiny_spaces import MINI

from deploynas.space import Space
from deploynas.training.recipe import Recipe


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
