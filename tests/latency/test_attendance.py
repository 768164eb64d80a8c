"""A worker notices that nobody waits for it any more: without `select`, which takes no pipes on Windows."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from deploynas.latency.attendance import end_when_abandoned
from deploynas.latency.worker import FactsRequest
from deploynas.latency.worker_process import WorkerProcess

PATIENCE_S = 60.0  # of the test, for what happens at once


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_it_ends_when_its_stdin_closes(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    ended = threading.Event()
    end_when_abandoned(ended.set, None, reading)
    os.write(writing, b"\n")
    assert not ended.is_set()
    os.close(writing)
    assert ended.wait(PATIENCE_S)
    os.close(reading)


def test_it_ends_after_silence(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    ended = threading.Event()
    end_when_abandoned(ended.set, 0.01, reading)
    assert ended.wait(PATIENCE_S)
    os.close(writing)


def test_signs_of_life_keep_it(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of the test's own: each beat counts from when it was heard."""
    from deploynas.latency import attendance

    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds
        if len(slept) <= 3:
            heard.at = now[0] - 5.0  # a beat, five seconds ago

    monkeypatch.setattr(attendance.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(attendance.time, "sleep", sleep)
    heard = attendance.Heard()
    attendance._watch(heard, 20.0, lambda: None)
    assert slept == [20.0, 15.0, 15.0, 15.0]
    for descriptor in pipe:
        os.close(descriptor)


def test_it_may_be_killed_while_it_waits() -> None:
    """The process ends, though a thread of it reads stdin."""
    script = (
        "import os, time; from deploynas.latency.attendance import end_when_abandoned\n"
        "end_when_abandoned(lambda: os._exit(75), 30.0)\nprint('up', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stdout.readline().strip() == b"up"
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 75
    process.stdout.close()


@pytest.mark.parametrize("code, raised", [(errno.EPIPE, False), (errno.EINVAL, False), (errno.EIO, True)])
def test_what_windows_says_of_a_worker_that_has_ended_is_no_error(code: int, raised: bool, tmp_path: Path) -> None:
    with WorkerProcess([sys.executable, "-c", ""], FactsRequest()) as worker:
        worker.process.wait()
        real = worker.process.stdin

        class Closed:
            def write(self, content: bytes) -> None:
                raise OSError(code, os.strerror(code))

        worker.process.stdin = Closed()  # type: ignore[assignment]
        try:
            if raised:
                with pytest.raises(OSError):
                    worker.send(b"\n")
            else:
                worker.send(b"\n")
        finally:
            worker.process.stdin = real
