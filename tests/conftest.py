"""Small spaces and fast devices, so that tests use the real runtime and still take seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deploynas.device import Device, Effort
from deploynas.space import Space

TINY = """
name: tiny
input: {channels: 1, height: 16, width: 12}
classes: 3
stem: {out: 8, stride: 2, activation: hard_swish}
first: {out: 8, kernel: 3, stride: 1, activation: relu}
stages:
  - {out: 8, stride: 1, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 3], ratios: [2.5], kernels: [3, 5], se: [0]}
head: {features: 24, hidden: 16, activation: hard_swish}
"""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def imagenet() -> Space:
    return Space.load("imagenet")


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("space") / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Space:
    return Space.load(tiny_path)


@pytest.fixture(scope="session")
def quick() -> Device:
    """The CPU with as little effort as the schema allows."""
    effort = Effort(
        workers=1,
        visits=2,
        part_visits=2,
        warmup_runs=0,
        runs=2,
        min_visit_ms=0.0,
        correction_networks=6,
        validation_networks=3,
        max_relative_error=1.0,
        time_limit_s=0.001,
    )
    return Device(name="quick", provider="cpu", effort=effort)
