"""The machine is at fault: one paragraph, exit code 1, no traceback, and what was there before is whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploynas.cli.machine_faults import machine_fault
from deploynas.latency.journal import Journal
from deploynas.latency.worker import Visit

FAST = (
    "name: fast\nprovider: cpu\neffort: {workers: 1, visits: 2, part_visits: 2, warmup_runs: 0, runs: 1, "
    "min_visit_ms: 0.0, correction_networks: 2, validation_networks: 2, max_relative_error: 1.0, time_limit_s: 0.1}\n"
)


def command(*words: str, folder: Path, limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command of ours that may write files of so many bytes: the kernel refuses more, as a full disk does."""
    script = "import sys\nfrom deploynas.cli import main\n"
    if limit_bytes is not None:
        script += f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))\n"
    script += f"sys.argv = ['deploynas', *{words!r}]\nmain()\n"
    return subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)


@pytest.mark.skipif(os.name == "nt", reason="no such limit")
def test_a_disk_that_takes_no_more(tmp_path: Path, tiny_path: Path) -> None:
    """It ends in the middle of the journal; with room again the same command ends, and no visit was made twice."""
    (tmp_path / "fast.yaml").write_text(FAST.replace("runs: 1", "runs: 300"))
    words = ("profile", "--device", "fast.yaml", "--space", str(tiny_path), "--out", "table.json")
    full = command(*words, folder=tmp_path, limit_bytes=60_000)  # more than a model of a part takes
    assert full.returncode == 1
    assert full.stderr.startswith("error: table.partial.jsonl: ") and full.stderr.count("\n") == 2, full.stderr
    assert "hint: " in full.stderr
    kept = (tmp_path / "table.partial.jsonl").read_bytes().count(b"\n") - 1
    assert kept > 0 and not (tmp_path / "table.json").exists()
    done = command(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fast.yaml", "table.json"]


def test_a_file_where_a_folder_is_wanted(tmp_path: Path, tiny_path: Path) -> None:
    (tmp_path / "fast.yaml").write_text(FAST)
    (tmp_path / "out").write_text("")
    words = ("profile", "--device", "fast.yaml", "--space", str(tiny_path), "--out", "out/table.json")
    done = command(*words, folder=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: out") and "Traceback" not in done.stderr


def test_a_runtime_that_was_removed(tmp_path: Path, tiny_path: Path) -> None:
    """As between `pip uninstall onnxruntime` and the installation of another provider's."""
    (tmp_path / "fast.yaml").write_text(FAST)
    script = (
        "import sys\nsys.modules['onnxruntime'] = None\nfrom deploynas.cli import main\n"
        f"sys.argv = ['deploynas', 'profile', '--device', 'fast.yaml', '--space', {str(tiny_path)!r}]\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: no package `onnxruntime` here\nhint: pip install onnxruntime")


def test_what_a_command_should_have_foreseen_is_a_bug() -> None:
    assert machine_fault(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) is None
    message, hint = machine_fault(OSError(errno.ENOSPC, "No space left on device", "runs/x")) or ("", "")
    assert message == "runs/x: No space left on device" and hint.startswith("make room")


@pytest.mark.parametrize("cut", [1, 10])
def test_a_journal_is_cut_where_it_is(tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not written again: a disk that is full by now would cost every visit. A line without its end is cut too."""
    path, header = tmp_path / "journal.jsonl", {"schema": "deploynas/profile-journal"}
    journal = Journal(path, header)
    for entry in ("stem", "head"):
        journal.add(Visit(entry=entry, samples_ms=[1.0]))
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])

    def full(*anything: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(Path, "write_bytes", full)
    again = Journal(path, header)
    again.close()
    assert again.resumed and [visit.entry for visit in again.visits] == ["stem"]
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
