"""The service of `examples/serve` as a process of its own on a free port of the loopback, and a client for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent
SERVE = ROOT / "examples" / "serve"
PATIENCE_S = 60  # of a busy test machine


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    port: int

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def classify(self, image: bytes, query: str = "") -> Answer:
        return self.ask("POST", f"/classify{query}", image)

    def metric(self, line: str) -> float:
        """The value behind a name with its labels; 0 before it was counted."""
        text = self.ask("GET", "/metrics").body.decode()
        return next((float(one.split()[-1]) for one in text.splitlines() if one.startswith(f"{line} ")), 0.0)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def stop(self, signal: int) -> int:
        """Its exit code."""
        self.process.send_signal(signal)
        return self.process.wait(PATIENCE_S)


def start(bundle: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SERVE / "serve.py"), str(bundle), "--port", "0", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def running(bundle: Path, *options: str) -> Iterator[Running]:
    """Ready, and ended whatever happens."""
    process = start(bundle, *options)
    try:
        assert process.stdout and process.stderr
        said = process.stdout.readline()
        if not said:
            raise AssertionError(f"it did not start: {process.stderr.read()}")
        found = Running(process, int(said.rstrip("/\n").rpartition(":")[2]))
        while found.ask("GET", "/readyz").status != 200:
            assert process.poll() is None
        yield found
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; a reset is an end too."""
    content = b""
    try:
        while piece := connection.recv(1 << 16):
            content += piece
    except ConnectionResetError:
        pass
    return content
