"""A worker seen from outside: a request goes in, JSON lines come out. The same for a process here and one behind ssh.

The request is the first line on the worker's stdin, which stays open: when it closes, whoever asked is gone, and the
worker ends.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Any

from deploynas.errors import DeployNASError, InputError
from deploynas.latency.worker import Request

if sys.platform == "win32":  # which has no sessions
    OWN_GROUP = subprocess.CREATE_NEW_PROCESS_GROUP
else:
    OWN_GROUP = 0


class WorkerProcess:
    def __init__(
        self, command: Sequence[str], request: Request, stderr: IO[bytes] | None = None, beat_s: float | None = None
    ) -> None:
        """With `beat_s` the worker gets a sign of life that often: a link may be dead without anybody being told."""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for us; we end the worker
            creationflags=OWN_GROUP,
        )
        self.send(request.model_dump_json().encode() + b"\n")
        self._over = threading.Event()
        if beat_s is not None:
            threading.Thread(target=self._beat, args=(beat_s,), daemon=True).start()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self.process
        assert process.stdin and process.stdout
        self._over.set()
        process.kill()
        process.wait()
        process.stdout.close()
        self.finish()

    def send(self, content: bytes) -> None:
        assert self.process.stdin
        with _even_if_it_has_ended():  # what it said and its exit code tell why
            self.process.stdin.write(content)
            self.process.stdin.flush()

    def finish(self) -> None:
        """Nothing more will be sent."""
        assert self.process.stdin
        with _even_if_it_has_ended():  # before it had read everything
            self.process.stdin.close()

    def _beat(self, every_s: float) -> None:
        while not self._over.wait(every_s):
            with suppress(ValueError):  # closed meanwhile
                self.send(b"\n")

    def lines(self) -> Iterator[bytes]:
        assert self.process.stdout
        yield from self.process.stdout  # blocks, so nothing of ours runs beside what is being measured


@contextmanager
def _even_if_it_has_ended() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        pass
    except OSError as error:  # Windows says "invalid argument" of a pipe that nobody reads
        if error.errno != errno.EINVAL:
            raise


def answer(line: bytes) -> dict[str, Any]:
    """What a line says; a worker's own error is raised here as if it had happened here."""
    said = json.loads(line)
    if "error" in said:
        kind = InputError if said["code"] == InputError.exit_code else DeployNASError
        raise kind(said["error"], said["hint"])
    return said
