"""The directions of import that the design draws, enforced: who may know whom, and what a light install lacks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.cli import COMMANDS
from deploynas.space import Space

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "deploynas"
GROUND = {
    "callable_module",
    "errors",
    "files",
    "inside_path",
    "parsing",
    "recorded",
    "progress",
    "provenance",
    "space",
    "blocks",
    "device",
    "costs",
    "timing",
    "outcome",
    "providers",
    "quantization",
}
# what each part may import from the rest of deploynas, besides itself and the ground everything stands on
MAY_KNOW = {
    **{name: set() for name in sorted(GROUND)},
    "graph": set(),
    "latency": {"graph"},
    "supernet": set(),
    "training": {"supernet"},
    "accuracy": {"supernet"},
    "search": set(),
    "export": {"graph", "supernet", "latency"},
    "report": set(),
    # the steps together; whatever is a step of its own belongs into one of the others
    "pipeline": {"graph", "latency", "supernet", "training", "accuracy", "search", "export", "report"},
    "cli": {"graph", "latency", "supernet", "training", "accuracy", "search", "export", "report", "pipeline", "cli"},
    # the public API, by name and loaded on first use
    "__init__": {"search", "export", "pipeline"},
    "__main__": {"cli"},
}
ONLY_IN = {
    "torch": {"supernet", "training", "accuracy", "export"},
    "timm": {"supernet", "training", "accuracy", "export"},
    "onnxruntime": {"latency", "export"},
    "click": {"cli"},
    "rich": {"cli"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            modules |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return modules


def known_modules(path: Path) -> set[str]:
    """Those of ours that a file imports: of `from a import b` the module `a.b` if there is one, else `a`."""
    found = {module for module in imported(path) if module in MODULES}
    return {module for module in found if not any(other.startswith(f"{module}.") for other in found)}


def cycles() -> list[set[str]]:
    """Groups of modules of which each imports, over some others, every other one."""
    edges = {module: known_modules(path) - {module} for module, path in MODULES.items()}
    reach = {module: set(targets) for module, targets in edges.items()}
    changed = True
    while changed:
        changed = False
        for reached in reach.values():
            further = set().union(*(reach[other] for other in reached)) - reached
            if further:
                reached |= further
                changed = True
    looping = [module for module in reach if module in reach[module]]
    groups = {frozenset(other for other in reach[module] if module in reach[other]) for module in looping}
    return [set(group) for group in groups]


@pytest.mark.parametrize("part", MAY_KNOW)
def test_no_module_imports_itself_over_others(part: str) -> None:
    """Imports inside functions included."""
    assert not [group for group in cycles() if any(part_of(MODULES[module]) == part for module in group)]


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


@pytest.mark.parametrize("name", ["", *COMMANDS])
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


def test_measuring_and_searching_never_import_torch(tiny_path: Path, tmp_path: Path) -> None:
    """As on a target machine: torch, timm and scikit-learn cannot be imported at all."""
    blocked = tmp_path / "blocked"
    for name in ("torch", "timm", "sklearn", "safetensors", "torchvision"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text("raise ImportError('not installed on the target')\n")
    device = tmp_path / "fast.yaml"
    device.write_text(
        "name: fast\nprovider: cpu\neffort: {workers: 1, visits: 2, part_visits: 2, warmup_runs: 0, runs: 1, "
        "min_visit_ms: 0.0, correction_networks: 2, validation_networks: 2, max_relative_error: 1.0, "
        "time_limit_s: 0.1}\n"
    )
    import os

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(blocked), str(ROOT)])}
    call = [sys.executable, str(ROOT / "cli.py"), "profile", "--device", str(device), "--space", str(tiny_path)]
    done = subprocess.run([*call, "--out", str(tmp_path / "t.json")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    space = Space.load(tiny_path)
    worth = [np.zeros((stage.max_depth, len(stage.configs))) for stage in space.stages]
    depths = [[0.0] * len(stage.depths) for stage in space.stages]
    BilinearEstimator.from_arrays(space, 0.5, depths, worth).save(tmp_path / "e.json")
    call = [sys.executable, str(ROOT / "cli.py"), "search", "--estimator", "e.json", "--latency", "t.json:1000"]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
