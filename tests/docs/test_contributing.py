"""The worked examples of CONTRIBUTING.md, applied to a copy of the tree; then the contracts run over what they add."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, blocks

# what each contract calls the additions
ADDED = {
    "tests/blocks/test_every_kind.py": "pool or mix",
    "tests/accuracy/test_every_estimator.py": "size",
    "tests/search/test_every_solver.py": "random",
}
COPIED = ("deploynas", "devices", "tests", "pyproject.toml")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as it is after a contributor has done all that the page says."""
    copy = tmp_path_factory.mktemp("contributor")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
        else:
            shutil.copy(ROOT / name, copy / name)
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    for block in blocks("CONTRIBUTING.md"):
        named = re.fullmatch(r"`([\w/.]+)`", lines[block.line - 3])  # the line above the fence, and an empty one
        if block.language == "python":
            assert named, f"{block.name}: say above it which file it is"
            assert not (copy / named.group(1)).exists()
            (copy / named.group(1)).write_text(block.text)
        elif block.language == "diff":
            assert named, f"{block.name}: say above it which file it changes"
            _apply(copy / named.group(1), block.text)
    return copy


def _apply(path: Path, change: str) -> None:
    """Lines that begin with + go after the line before them, which must be there once."""
    text = path.read_text()
    before, *added = change.splitlines()
    before = before.removeprefix(" ")
    assert text.count(f"{before}\n") == 1, f"{path.name} does not have the line {before!r} once"
    assert added and all(line.startswith("+") for line in added)
    new = "".join(f"{line.removeprefix('+')}\n" for line in added)
    path.write_text(text.replace(f"{before}\n", f"{before}\n{new}"))


@pytest.mark.parametrize("contract", ADDED)
def test_the_contract_holds_for_the_example(tree: Path, contract: str) -> None:
    command = [sys.executable, "-m", "pytest", contract, "-p", "no:cacheprovider", "-k", ADDED[contract]]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed.group(1)) >= 4, done.stdout


def test_the_examples_are_clean(tree: Path) -> None:
    examples = [tree / "deploynas/blocks/pool.py", tree / "deploynas/supernet/pool.py"]
    examples += [tree / "deploynas/accuracy/size.py", tree / "deploynas/search/random_search.py"]
    for check in (["ruff", "check"], ["ruff", "format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", *check, *map(str, examples)], cwd=tree, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
