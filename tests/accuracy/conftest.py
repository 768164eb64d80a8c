from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tiny_spaces import SMALL

from deploynas.space import Space

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Space:
    path = tmp_path_factory.mktemp("space") / "small.yaml"
    path.write_text(SMALL)
    return Space.load(path)
