"""The directions of import that the design draws, enforced: who may know whom, and what a light install lacks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "deploynas"
GROUND = {"callable_module", "errors", "files", "progress", "space", "blocks", "device", "costs"}
# what each part may import from the rest of deploynas, besides itself and the ground everything stands on
MAY_KNOW = {
    **{name: set() for name in GROUND},
    "graph": set(),
    "latency": {"graph"},
    "supernet": set(),
    "training": {"supernet"},
    "accuracy": {"supernet"},
    "search": set(),
    "export": {"graph", "supernet", "latency"},
    "report": set(),
    # the steps together; whatever is a step of its own belongs into one of the others
    "shipping": {"graph", "latency", "supernet", "training", "accuracy", "search", "export", "report"},
    "cli": {"graph", "latency", "supernet", "training", "accuracy", "search", "export", "report", "shipping", "cli"},
}
ONLY_IN = {
    "torch": {"supernet", "training", "accuracy", "export"},
    "timm": {"supernet", "training", "accuracy", "export"},
    "onnxruntime": {"latency", "export"},
    "click": {"cli"},
    "rich": {"cli"},
}
LIGHT = ["profile", "bench", "check", "search", "estimate", "explain", "devices"]
SHIPPING = ["finetune", "export", "report", "run"]
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem[0] != "_")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module a file imports, at any depth, except for type checkers alone."""
    tree = ast.parse(path.read_text())
    only_typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    modules = set()
    for node in ast.walk(tree):
        if id(node) in only_typing:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_the_way_the_design_draws(path: Path) -> None:
    part = part_of(path)
    allowed = MAY_KNOW[part] | GROUND | {part} if part not in GROUND else GROUND
    for module in imported(path):
        top, *rest = module.split(".")
        if (
            top == "deploynas"
            and rest
            and (PACKAGE / rest[0]).with_suffix(".py").exists() | (PACKAGE / rest[0]).is_dir()
        ):
            assert rest[0] in allowed, f"{part} may not know {rest[0]}"
        if top in ONLY_IN:
            assert part in ONLY_IN[top], f"{top} does not belong in {part}"


def test_every_part_is_installed() -> None:
    import re

    listed = set(re.findall(r'"(deploynas(?:\.\w+)*)",', (ROOT / "pyproject.toml").read_text()))
    folders = {
        ".".join(["deploynas", *path.parent.relative_to(PACKAGE).parts])
        for path in PACKAGE.rglob("*.py")
        if path.name == "__init__.py"
    }
    assert folders <= listed


@pytest.mark.parametrize("name", ["", *LIGHT, *SHIPPING])
def test_help_imports_nothing_heavy(name: str) -> None:
    command = [name] if name else []
    script = (
        "import sys\nfrom deploynas.cli import main\n"
        f"sys.argv = ['deploynas', *{command!r}, '--help']\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'torch', 'timm', 'onnxruntime', 'onnx', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_measuring_never_imports_torch(tiny_path: Path, tmp_path: Path) -> None:
    """As on a target machine: torch, timm and scikit-learn cannot be imported at all."""
    blocked = tmp_path / "blocked"
    for name in ("torch", "timm", "sklearn", "safetensors", "torchvision"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text("raise ImportError('not installed on the target')\n")
    device = tmp_path / "fast.yaml"
    device.write_text(
        "name: fast\nprovider: cpu\neffort: {workers: 1, visits: 2, part_visits: 2, warmup_runs: 0, runs: 1, "
        "min_visit_ms: 0.0, calibration_networks: 2, validation_networks: 2, max_relative_error: 1.0, "
        "time_limit_s: 0.1}\n"
    )
    import os

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(blocked), str(ROOT)])}
    call = [sys.executable, str(ROOT / "cli.py"), "profile", "--device", str(device), "--space", str(tiny_path)]
    done = subprocess.run([*call, "--out", str(tmp_path / "t.json")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
