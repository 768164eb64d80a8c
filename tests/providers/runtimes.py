"""Which runtimes are installed.

Tests of one that is not are skipped. `.ci/providers` installs each in turn, and lets none be skipped.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def installed(*packages: str) -> str | None:
    """The first of these packages that is there."""
    for package in packages:
        try:
            version(package)
        except PackageNotFoundError:
            continue
        return package
    return None


def needs(*packages: str) -> pytest.MarkDecorator:
    reason = f"needs {' or '.join(packages)}, which `.ci/providers` installs"
    return pytest.mark.skipif(installed(*packages) is None, reason=reason)


def oldest_runtime() -> str:
    """The lower bound of `pyproject.toml`."""
    bound = re.search(r'^    "onnxruntime>=([\d.]+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert bound is not None
    return bound[1]
