"""Small spaces and fast devices, so that tests use the real runtime and still take seconds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tiny_spaces import SIZED, TINY

from deploynas.device import Device, Effort
from deploynas.space import Space

# before torch is imported, and for every process of a test: threads of several test processes wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
def sized(tmp_path_factory: pytest.TempPathFactory) -> Space:
    """Of three input sizes."""
    path = tmp_path_factory.mktemp("space") / "sized.yaml"
    path.write_text(SIZED)
    return Space.load(path)


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
