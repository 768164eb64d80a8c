"""One folder, one writer: who is refused, what is said, and that no way to end leaves a lock behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploynas import one_writer
from deploynas.files import TEMPORARY
from deploynas.one_writer import LOCK, FolderInUse, writing, writing_in

posix = pytest.mark.skipif(os.name == "nt", reason="signals and forks")

HOLDER = """
import sys, time
from pathlib import Path
from deploynas.one_writer import writing_in
with writing_in(Path(sys.argv[1]), "train"):
    {before}
    print("held", flush=True)
    time.sleep(60)
"""
FORK = """
    import os
    child = os.fork()
    if not child:
        time.sleep(60)
    print(child, flush=True)
"""
WORKER = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"


@contextmanager
def holder(folder: Path, before: str = "") -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process that holds the folder, and the processes that it has started meanwhile."""
    script = HOLDER.format(before=before.strip())
    process = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    started = []
    try:
        while (line := process.stdout.readline().strip()) != "held":
            started.append(int(line))
        yield process, started
    finally:
        process.kill()
        process.wait()
        for pid in started:
            os.kill(pid, signal.SIGKILL)


def test_a_second_process_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as (process, _):
        with pytest.raises(FolderInUse) as refused, writing_in(tmp_path / "run", "run"):
            pass
        assert refused.value.exit_code == 1
        assert refused.value.message.endswith(f"`deploynas train`, process {process.pid} is writing there")
        assert str(tmp_path / "run") in refused.value.message and "`--out`" in str(refused.value.hint)
        said = json.loads((tmp_path / "run" / LOCK).read_text())
        assert (said["schema"], said["pid"], said["command"]) == ("deploynas/lock", process.pid, "train")
        with writing_in(tmp_path / "another", "run"):
            pass


@posix
@pytest.mark.parametrize("before", ["", FORK, WORKER], ids=["alone", "with a forked child", "with a started child"])
def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path, before: str) -> None:
    """Nor while processes live on that it has started: they have no share in the lock."""
    with holder(tmp_path, before) as (process, started):
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).exists() and all(Path(f"/proc/{pid}").exists() or os.name == "nt" for pid in started)
        with writing_in(tmp_path, "run"):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK).exists()


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("{}")
    with writing_in(tmp_path, "run"), writing(tmp_path / "table.json", "profile"):
        assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, f".table.json{LOCK}", "table.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]
    with writing_in(tmp_path / "new", "run"):
        pass
    assert not (tmp_path / "new").exists()  # nothing came of it
    with pytest.raises(ZeroDivisionError), writing_in(tmp_path, "run"):
        _ = 1 / 0
    assert not (tmp_path / LOCK).exists()


def test_steps_of_one_command_share_its_folder(tmp_path: Path) -> None:
    """`prune` fine-tunes in its own folder; another thread is another writer."""
    refused: list[Exception] = []

    def elsewhere() -> None:
        try:
            with writing_in(tmp_path, "finetune"):
                pass
        except FolderInUse as error:
            refused.append(error)

    with writing_in(tmp_path, "prune"):
        with writing_in(tmp_path, "finetune"):
            pass
        assert (tmp_path / LOCK).exists()  # still held by the outer one
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(refused) == 1
    elsewhere()
    assert len(refused) == 1


@posix
def test_many_at_once_are_never_two(tmp_path: Path) -> None:
    """Locks that are removed and made again all the time: each counts only while the file is still the one in place."""
    script = """
import sys, time
from pathlib import Path
from deploynas.one_writer import FolderInUse, writing_in
folder, inside, until, done = Path(sys.argv[1]), Path(sys.argv[1]) / "inside", time.monotonic() + 2, 0
while time.monotonic() < until:
    try:
        with writing_in(folder, "run"):
            inside.mkdir()
            inside.rmdir()
            done += 1
    except FolderInUse:
        pass
print(done)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate() for process in running]
    assert [errors for _, errors in said] == ["", "", ""]
    assert all(int(done) > 0 for done, _ in said)


def test_a_folder_that_cannot_be_written_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run on a disk that is read only can still be reported; whoever writes there is refused by the disk."""

    def refuse(path: Path, mode: str = "r") -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with writing_in(tmp_path, "train"):
        assert not list(tmp_path.iterdir())


@posix
def test_a_file_system_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(one_writer, "_acquire", refuse)
    with pytest.warns(RuntimeWarning, match="has no locks"), writing_in(tmp_path, "train"):
        pass


def test_what_a_killed_writer_left_half_done_goes(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "supernet").mkdir()
    left = tmp_path / "supernet" / f".state.json.{ended.pid}{TEMPORARY}"
    others = tmp_path / f".found.json.{os.getpid()}{TEMPORARY}"
    for path in (left, others):
        path.write_text("half")
    with writing_in(tmp_path, "train"):
        pass
    assert not left.exists() and others.exists()


@posix
@pytest.mark.parametrize("polite", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_kill_of_a_command_cleans_up(tmp_path: Path, tiny_path: Path, polite: int) -> None:
    """`profile` has a lock, a journal and a worker: the lock goes, the journal stays, and what to do next is said."""
    device = tmp_path / "slow.yaml"
    device.write_text("name: slow\nprovider: cpu\neffort: {workers: 1, visits: 1000, part_visits: 1000}\n")
    out = tmp_path / "made" / "table.json"
    words = ["profile", "--device", str(device), "--space", str(tiny_path), "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "deploynas", *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(polite, signal.SIG_DFL),  # whoever runs the tests in the background ignores it
    )
    journal = out.with_suffix(".partial.jsonl")
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 2):
        time.sleep(0.05)
    again = subprocess.run([sys.executable, "-m", "deploynas", *words], capture_output=True, text=True)
    assert again.returncode == 1 and "Traceback" not in again.stderr
    assert f"`deploynas profile`, process {process.pid} is writing there" in again.stderr
    process.send_signal(polite)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "hint: the same command resumes where it stopped" in said
    assert [path.name for path in out.parent.iterdir()] == [journal.name]
