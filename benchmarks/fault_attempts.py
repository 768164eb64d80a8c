"""One run of a command that something happens to: started, watched, killed in one of four ways, asked what it said.

A command is a process of its own, forked from one that has imported everything, so that no time goes into imports;
processes that the command itself starts are started as always.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

CAPABILITIES_V3 = 0x20080522
ORPHANS_S = 25.0  # a worker behind a dead link ends after 20 s
WAYS = ("kill -9, all processes", "kill -9, the command alone", "SIGTERM", "SIGINT")


def nothing() -> None:
    """To be done in the new process before the command."""


@dataclass
class Attempt:
    """A command while it runs, and after."""

    pid: int
    said_in: Path
    started: float = field(default_factory=time.monotonic)
    code: int | None = None
    seconds: float = 0.0

    @classmethod
    def start(
        cls, words: Sequence[str], folder: Path, before: Callable[[], None] = nothing, said_in: Path | None = None
    ) -> Attempt:
        said_in = said_in or folder.parent / f"{folder.name}.stderr"
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return cls(pid, said_in)
        code = 70
        try:
            os.setsid()
            _redirect(said_in)
            os.chdir(folder)
            before()
            code = _run(words)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def over(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code, self.seconds = os.waitstatus_to_exitcode(status), time.monotonic() - self.started
        return self.code is not None

    def wait(self, limit_s: float = 600.0) -> int:
        """Its exit code; a command that hangs is killed, and is a finding."""
        while not self.over():
            if time.monotonic() - self.started > limit_s:
                for process in [*self.children(), psutil.Process(self.pid)]:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                raise TimeoutError(f"still running after {limit_s:g} s")
            time.sleep(0.005)
        assert self.code is not None
        return self.code

    def until(self, moment: Callable[[], bool], delay_s: float = 0.0) -> bool:
        """Wait for a moment, and so long after it; whether the command is still running then."""
        while not self.over() and not moment():
            time.sleep(0.002)
        end = time.monotonic() + delay_s
        while not self.over() and time.monotonic() < end:
            time.sleep(0.002)
        return not self.over()

    def children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self, way: str) -> float:
        """End it in one of the ways; returns for how many seconds any process of it has outlived it."""
        children = self.children()
        number = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}.get(way, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if way == WAYS[0]:
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self.wait(60.0)
        ended = time.monotonic()
        _, left = psutil.wait_procs(children, timeout=ORPHANS_S)
        for child in left:
            child.kill()
        if left:
            raise TimeoutError(f"{len(left)} processes outlived the command by {ORPHANS_S:g} s")
        return time.monotonic() - ended

    def said(self) -> str:
        return self.said_in.read_text(errors="replace") if self.said_in.exists() else ""

    def complaints(self) -> list[str]:
        """What is wrong with how it ended: an error is one paragraph, and has an exit code that means something."""
        said, wrong = self.said(), []
        if "Traceback" in said:
            last = said.strip().splitlines()[-1]
            wrong.append(f"traceback: {last}")
        if self.code is not None and self.code > 0:
            if self.code not in (1, 2, 3, 130):
                wrong.append(f"exit code {self.code}")
            if said.count("error: ") != 1:
                wrong.append(f"{said.count('error: ')} errors said instead of one")
        return wrong


def bound_by_permissions() -> None:
    """Give up what root is allowed beyond them (capabilities 1 and 2: to read and write whatever it likes)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)()  # twice: effective, permitted, inheritable
    if libc.capget(header, sets) or libc.capset(header, _without(sets, 0b110)):
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _without(sets: ctypes.Array, bits: int) -> ctypes.Array:
    for i in range(3):
        sets[i] &= ~bits
    return sets


def _redirect(said_in: Path) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    said = os.open(said_in, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for wanted, descriptor in ((0, nowhere), (1, nowhere), (2, said)):
        os.dup2(descriptor, wanted)


def _run(words: Sequence[str]) -> int:
    from deploynas.cli import main

    sys.argv = ["deploynas", *words]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
