"""Every shell and Python example of the documentation, run in the order in which a reader meets them.

All run in one folder, so a later example finds what earlier ones left behind. What is typed is what is printed there;
SMALLER makes it quick, and changes nothing else: fewer images and epochs, less measuring, gates that noise cannot trip.
(`warm_start` spares every command the import of torch.)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_start
import yaml
from pages import ROOT, RUNNABLE, Block, blocks, pages

from deploynas.device import shipped

EFFORT = {
    "workers": 1,
    "visits": 2,
    "part_visits": 2,
    "warmup_runs": 0,
    "runs": 1,
    "min_visit_ms": 0.0,
    "correction_networks": 4,
    "validation_networks": 2,
    "max_relative_error": 1.0,
    "time_limit_s": 0.1,
}
TRAINING = "--set w_h.epochs=1 --set w_star.epochs=1 --set report_networks=2 --set recalibration_images=64"

# (what a line of an example must match, what is put in its place); \g<0> is the line itself
SMALLER = [
    (r"^python3 -m venv .* && (deploynas run)$", r"\1"),  # installed already
    (r"^deploynas run(?!.*--data).*", r"\g<0> --data folder:small"),
    (r"--data fashion-mini\b", "--data folder:small"),
    (r"^deploynas train(?!.*--data).*", r"\g<0> --data folder:small"),
    (r"^deploynas (run|train) .*", rf"\g<0> {TRAINING}"),
    (r"^deploynas (run|finetune) .*", r"\g<0> --set finetune.epochs=1"),
    (r"^deploynas (run|estimate)(?!.*--from) .*", r"\g<0> --validate 10"),
    (r"--passes \d+(?! --rounds)", "--passes 12"),  # a round has a least number
    (r"^deploynas (run|estimate)(?!.*--(passes|from)).*", r"\g<0> --passes 2"),
    (r"--per-class \d{2,}", "--per-class 12"),
    (r"(--latency \S+\.json):[\d.]+", r"\1:1000"),  # tables that were measured so little are wrong
    (r"--min-accuracy [\d.]+", "--min-accuracy 0.001"),  # networks that were trained so little know nothing
    (r"^deploynas bench .*", r"\g<0> --runs 20"),
    (r"^deploynas (check|profile --verify) .*", r"\g<0> --threshold 9"),  # a busy test machine is not a regression
    (r"^deploynas (run|export) .*", r"\g<0> --patience 0"),  # nobody waits until a test machine is quiet
    (r"^budgets: .*", rf"\g<0>\neffort: {EFFORT}"),
]

# examples that are not run, and why: nothing is left out in silence
NOT_RUN = {
    "README.md": ["it is what runs this test"],
    "docs/cells.md": ["trains a supernet, some minutes"],
    "docs/devices.md": ["installs five environments"],
    "docs/ensembles.md": ["fine-tunes twice, which docs/finetune.md does"],
    "docs/estimate.md": ["starts two processes, which tests/cli does"],
    "docs/imagenet.md": [
        *["needs a checkpoint and images that you download"] * 4,
        "works in a clone, where the data are",
    ],
    "docs/import.md": ["needs a checkpoint and images that its reader must download"],
    "docs/profile.md": ["needs a machine that `ssh` reaches, which tests/latency has"],
    "docs/prune.md": [
        "a latency to keep, where a test machine measures too little to know it; tests/pipeline runs the command",
        "needs weights and images of your own",
    ],
    "docs/relaxed.md": ["takes minutes"],
    "docs/sparse.md": ["needs a package that is not installed with deploynas"],
    "docs/train.md": ["starts two training processes, which takes longer than the test may"],
    "docs/training-free.md": ["takes minutes"] * 2,
}

ELSEWHERE = "CONTRIBUTING.md"  # its examples change the tree: see test_contributing
EXAMPLES = [block for page in pages() if page != ELSEWHERE for block in blocks(page) if block.language in RUNNABLE]


class Workspace:
    """A folder like a reader's: the clone's `examples/`, devices that measure little, a few images."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: str | None = None
        self._bin = folder / ".bin"
        self._bin.mkdir()
        self._command("python", f'exec "{sys.executable}" "$@"')
        self._command("deploynas", f'exec "{sys.executable}" -S -E "{warm_start.__file__}" "$@"')
        self._environment = {
            **os.environ,
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}",
            "NO_COLOR": "1",
            warm_start.SOCKET: str(folder / ".socket"),
        }
        serve = f"import pathlib, warm_start; warm_start.serve(pathlib.Path({str(folder / '.socket')!r}))"
        self._server = subprocess.Popen(
            [sys.executable, "-c", serve], cwd=folder, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "devices").mkdir()
        for path in shipped():
            device = {**yaml.safe_load(path.read_text()), "effort": EFFORT, "budgets": {"latency_ms": 1000.0}}
            (folder / "devices" / path.name).write_text(yaml.safe_dump(device))
        self.run("python examples/own-data/write_images.py small --per-class 12\n", "sh")
        assert self._server.stdout and self._server.stdout.readline() == "ready\n"

    def close(self) -> None:
        self._server.kill()
        self._server.wait()

    def run(self, text: str, language: str) -> None:
        path = self.folder / f".example.{language}"
        path.write_text(text)
        command = ["bash", "-eu", str(path)] if language == "sh" else [sys.executable, str(path)]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"exit code {done.returncode}\n{text}\n{done.stdout}\n{done.stderr}"

    def _command(self, name: str, text: str) -> None:
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    opened = Workspace(tmp_path_factory.mktemp("reader"))
    yield opened
    opened.close()


def smaller(text: str) -> str:
    """The example with SMALLER applied, line by line; a line that ends in a backslash continues."""
    lines = []
    for line in text.replace("\\\n", " ").splitlines():
        command, comment = re.match(r"(.*?)(\s+#.*)?$", line).groups()  # type: ignore[union-attr]
        for pattern, replacement in SMALLER:
            command = re.sub(pattern, replacement, command)
        lines.append(command + (comment or ""))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("block", [block for block in EXAMPLES if not block.not_run], ids=lambda block: block.name)
def test_the_example_runs(workspace: Workspace, block: Block) -> None:
    if workspace.failed:
        pytest.fail(f"needs what {workspace.failed} leaves behind, which failed")
    try:
        workspace.run(smaller(block.text) if block.language == "sh" else block.text, block.language)
    except BaseException:
        workspace.failed = block.name
        raise


def test_what_is_not_run_says_why() -> None:
    found: dict[str, list[str]] = {}
    for block in EXAMPLES:
        if block.not_run:
            found.setdefault(block.page, []).append(block.not_run)
    assert found == NOT_RUN


def test_no_command_hides_in_a_fence_without_a_language() -> None:
    for page in pages():
        for block in blocks(page):
            assert block.language, f"{block.name}: say what it is: sh, python, yaml or text"
            if block.language == "text":
                assert not block.text.startswith("deploynas "), f"{block.name}: a command that runs here is `sh`"
