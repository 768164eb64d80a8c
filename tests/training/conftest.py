"""A space and a recipe small enough to train within a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deploynas.space import Space
from deploynas.training.recipe import Recipe

SPACE = """
schema: deploynas/space
schema_version: 1
name: tiny
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3, 5], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""
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
    path.write_text(SPACE)
    return path


@pytest.fixture
def space(space_file) -> Space:
    return Space.load(space_file)


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.load("fashion", SETTINGS)
