"""Benchmarks are run by hand, so a name that moved would be noticed late: every name they import from us is there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_exists(script: Path) -> None:
    if script.stem == "before_after":
        pytest.skip("asks older checkouts for older names, and says so where one is missing")
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deploynas"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                try:
                    getattr(module, alias.name)
                except AttributeError:
                    importlib.import_module(f"{node.module}.{alias.name}")
