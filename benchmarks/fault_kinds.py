"""The faults: what is done to a command, and what must be true afterwards. Each returns what it found, or None where
the command has nothing that could fail in this way.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from fault_attempts import WAYS, Attempt, bound_by_permissions, nothing
from fault_changes import CHANGES
from fault_checks import half_written, left_over, locked
from fault_commands import Command

DISK_BYTES = 256 << 20
TRIES = 4  # of a fault that came too late, before it is left at that
MEASURING = ("profile", "prune", "export", "run")


@dataclass
class Finding:
    """What became of one command under one kind of fault."""

    command: str
    fault: str
    injected: int = 0
    same: int = 0  # came to the result of the run without faults
    errors: int = 0  # ended with one clear error first
    wrong: list[str] = field(default_factory=list)
    left_out: str = ""
    said: list[str] = field(default_factory=list)  # by the errors
    orphans_s: float = 0.0  # the longest that a process has outlived its command

    def line(self) -> str:
        verdict = self.left_out or "; ".join(self.wrong) or "ok"
        counts = f"{self.injected} injected, {self.same} the same, {self.errors} errors"
        return f"{self.command}, {self.fault}: {counts}: {verdict}"

    def record(self) -> dict[str, Any]:
        return vars(self)


@dataclass(frozen=True)
class Bench:
    """Where it happens."""

    folder: Path
    rng: random.Random
    kills: int
    seconds: dict[str, float]  # of a run without faults
    board: Any = None  # another machine, on the loopback

    @property
    def quiet(self) -> Path:
        return self.folder / "quiet"

    def work(self, command: Command) -> Path:
        folder = self.folder / command.name.replace(" ", "-")
        command.inputs_into(folder, self.quiet)
        return folder

    def begun(self, command: Command, work: Path) -> Callable[[], bool]:
        return lambda: command.begun(work)

    def moment(self, command: Command) -> float:
        """Somewhere in the time that it takes."""
        return self.rng.uniform(0, self.seconds[command.name])


def killed(bench: Bench, command: Command) -> Finding:
    found, work = Finding(command.name, "killed"), bench.work(command)
    for number in range(bench.kills):
        way = WAYS[number % len(WAYS)]
        while True:
            attempt = Attempt.start(command.words, work)
            if attempt.until(bench.begun(command, work), bench.moment(command)):
                break
            _judge_end(found, attempt, bench, command, work)
            command.inputs_into(work, bench.quiet)
        try:
            found.orphans_s = max(found.orphans_s, attempt.kill(way))
        except TimeoutError as error:
            found.wrong.append(f"{way}: {error}")
        found.injected += 1
        if way in ("SIGTERM", "SIGINT"):
            found.wrong += [f"{way}: {problem}" for problem in attempt.complaints()]
            if attempt.code not in (0, 130):
                found.wrong.append(f"{way}: exit code {attempt.code}")
        _judge_state(found, work)
    _finish(found, bench, command, work)
    return found


def disk_full(bench: Bench, command: Command) -> Finding:
    found = Finding(command.name, "disk full")
    need = sum(_size(bench.quiet / name) for name in command.makes) - sum(
        _size(bench.quiet / n) for n in command.needs if n in command.makes
    )
    with _small_disk(bench.folder / "disk") as disk:
        if disk is None:
            found.left_out = "left out: no file system can be mounted here"
            return found
        for _ in range(max(1, bench.kills // 3)):
            work = disk / "work"
            command.inputs_into(work, bench.quiet)
            free = bench.rng.uniform(0, max(need, 1 << 16))
            for _ in range(TRIES):
                _leave_free(disk, int(free))
                attempt = Attempt.start(command.words, work)
                attempt.wait()
                if attempt.code != 0:
                    break
                command.inputs_into(work, bench.quiet)
                free /= 2
            if attempt.code == 0:
                continue
            found.injected += 1
            _judge_error(found, attempt, "No space left on device")
            _judge_state(found, work)
            (disk / "ballast").unlink()
            _finish(found, bench, command, work)
    return found


def rights_taken(bench: Bench, command: Command) -> Finding:
    found = Finding(command.name, "rights taken away")
    if sys.platform != "linux":
        found.left_out = "left out: root is bound by permissions on Linux only"
        return found
    for _ in range(max(1, bench.kills // 3)):
        for _ in range(TRIES):
            work = bench.work(command)
            attempt = Attempt.start(command.words, work, bound_by_permissions)
            if attempt.until(bench.begun(command, work), 0.7 * bench.moment(command)):
                _folders(work, 0o555)
                attempt.wait()
            if attempt.code != 0:
                break
        if attempt.code == 0:
            continue
        found.injected += 1
        _judge_error(found, attempt, "Permission denied")
        _judge_state(found, work)
        _folders(work, 0o755)
        _finish(found, bench, command, work, bound_by_permissions)
    return found


def worker_killed(bench: Bench, command: Command) -> Finding | None:
    if command.name not in MEASURING:
        return None
    found = Finding(command.name, "worker killed")
    for _ in range(max(1, bench.kills // 3)):
        work = bench.work(command)
        attempt, workers = Attempt.start(command.words, work), list[psutil.Process]()
        after = attempt.started + 0.7 * bench.moment(command)

        def measuring(of: Attempt = attempt, into: list[psutil.Process] = workers, after: float = after) -> bool:
            if time.monotonic() > after:
                into[:] = [child for child in of.children() if _is_worker(child)]
            return bool(into)

        if not attempt.until(measuring):
            attempt.wait()
            continue
        for worker in workers:
            worker.kill()
        attempt.wait()
        found.injected += 1
        if attempt.code:
            _judge_error(found, attempt, "the measuring process ended")
        _judge_state(found, work)
        _finish(found, bench, command, work)
    return found


def connection_cut(bench: Bench, command: Command) -> Finding | None:
    """It is made again, and nothing is lost; unless nobody has answered yet, who may not exist: then that is said."""
    if command.name != "profile over ssh":
        return None
    found, work = Finding(command.name, "connection cut"), bench.work(command)
    attempt = Attempt.start(command.words, work)
    for _ in range(max(1, bench.kills // 3)):
        if not attempt.until(lambda: bool(bench.board.workers()), bench.rng.uniform(0, 2)):
            break
        bench.board.cut()
        found.injected += 1
    attempt.wait()
    if attempt.code:
        _judge_error(found, attempt, "no connection to")
        _finish(found, bench, command, work)
    else:
        _judge_end(found, attempt, bench, command, work)
    return found


def second_command(bench: Bench, command: Command) -> Finding:
    found, work = Finding(command.name, "second command beside it"), bench.work(command)
    first = Attempt.start(command.words, work)
    if first.until(bench.begun(command, work), 0.02):
        second = Attempt.start(command.words, work, said_in=work.with_name("second.stderr"))
        second.wait()
        found.injected += 1
        if first.over() and second.code == 0:
            found.wrong.append("the second one waited, or was too late")
        else:
            _judge_error(found, second, "is in use")
    first.wait()
    _judge_end(found, first, bench, command, work)
    return found


def provider_gone(bench: Bench, command: Command) -> Finding | None:
    """Between two attempts: first the provider, then the runtime."""
    if command.name not in MEASURING:
        return None
    found, work = Finding(command.name, "provider removed"), bench.work(command)
    for hide, expected in ((_hide_provider, "is not installed"), (_hide_runtime, "onnxruntime")):
        attempt = Attempt.start(command.words, work)
        if attempt.until(bench.begun(command, work), 0.5 * bench.moment(command)):
            attempt.kill(WAYS[0])
        else:
            command.inputs_into(work, bench.quiet)
        without = Attempt.start(command.words, work, hide)
        without.wait()
        found.injected += 1
        _judge_error(found, without, expected)
        _judge_state(found, work)
    _finish(found, bench, command, work)
    return found


def file_changed(bench: Bench, command: Command) -> Finding | None:
    """What it reads, after it was killed; what it wrote, after it had ended: an error, or done again."""
    changes = CHANGES.get(command.name, ())
    found = Finding(command.name, "file changed")
    for change in changes:
        work = bench.work(command)
        attempt = Attempt.start(command.words, work)
        if change.after_the_end:
            attempt.wait()
        elif attempt.until(bench.begun(command, work), 0.8 * bench.moment(command)):
            attempt.kill(WAYS[0])
        before = change.make(work)
        again = Attempt.start(command.words, work)
        again.wait()
        found.injected += 1
        if again.code:
            _judge_error(found, again, "")
        elif problem := change.unnoticed(work, before, bench.quiet, command):
            found.wrong.append(f"{change.file}: {problem}")
        else:
            found.same += 1
        _judge_state(found, work, except_for=change.file)
    return found if changes else None


FAULTS: tuple[Callable[[Bench, Command], Finding | None], ...] = (
    killed,
    disk_full,
    rights_taken,
    worker_killed,
    connection_cut,
    second_command,
    provider_gone,
    file_changed,
)


def _judge_state(found: Finding, work: Path, except_for: str = "") -> None:
    """Whenever a command has ended."""
    found.wrong += [
        f"half written: {problem}" for problem in half_written(work) if not except_for or except_for not in problem
    ]
    found.wrong += [f"still locked: {name}" for name in locked(work)]


def _judge_error(found: Finding, attempt: Attempt, expected: str) -> None:
    """One clear paragraph."""
    problems = attempt.complaints()
    found.said.append(" ".join(attempt.said().partition("error: ")[2].split()))
    if attempt.code == 0:
        problems.append("ended well")
    elif expected not in attempt.said():
        problems.append(f"said: {attempt.said().strip().splitlines()[-2:]}")
    found.wrong += problems
    found.errors += not problems


def _judge_end(found: Finding, attempt: Attempt, bench: Bench, command: Command, work: Path) -> None:
    """It has ended by itself: as it would have without any fault?"""
    problems = attempt.complaints()
    if attempt.code != 0 and not any(words in attempt.said() for words in command.also_done):
        problems.append(f"did not end well: {' '.join(attempt.said().strip().splitlines()[-2:])}")
    else:
        problems += command.differences(bench.quiet, work)
        problems += [f"left over: {name}" for name in left_over(work)]
    found.wrong += problems
    found.same += not problems
    _judge_state(found, work)


def _finish(found: Finding, bench: Bench, command: Command, work: Path, before: Callable[[], None] = nothing) -> None:
    attempt = Attempt.start(command.words, work, before)
    attempt.wait()
    _judge_end(found, attempt, bench, command, work)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "deploynas.latency.worker" in process.cmdline()
    except psutil.Error:
        return False


def _hide_provider() -> None:
    import onnxruntime

    onnxruntime.get_available_providers = lambda: ["AzureExecutionProvider"]


def _hide_runtime() -> None:
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]:
        sys.modules[name] = None  # type: ignore[assignment]


@contextmanager
def _small_disk(place: Path) -> Iterator[Path | None]:
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _leave_free(disk: Path, free_bytes: int) -> None:
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    room = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_bsize - free_bytes))


def _size(path: Path) -> int:
    return sum(inner.stat().st_size for inner in ([path] if path.is_file() else path.rglob("*")) if inner.is_file())


def _folders(folder: Path, mode: int) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(mode)
