from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deploynas.space import Space

sys.path.insert(0, str(Path(__file__).parent))

SPACE = """
name: small
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 3], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Space:
    path = tmp_path_factory.mktemp("space") / "small.yaml"
    path.write_text(SPACE)
    return Space.load(path)
