"""Nothing that deploynas does asks for a network: every command runs where sockets to other machines are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Read by every Python that is started, so by the workers of a profile too. A socket that is a file is not the network.
REFUSED = """
import socket
import sys

class Refused(BaseException):  # which no `except Exception` hides
    pass

def refuse(event, arguments):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and arguments[0].family != socket.AF_UNIX):
        raise Refused(f"{event}{arguments[1:]}")

sys.addaudithook(refuse)
"""
QUICK = (ROOT / ".ci" / "quick.yaml").read_text()
TABLE = ROOT / "profiles" / "epyc-2-cores" / "cpu-1t.ofa-mbv3.json"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    (tmp_path / "prelude").mkdir()
    (tmp_path / "prelude" / "sitecustomize.py").write_text(REFUSED)
    (tmp_path / "quick.yaml").write_text(QUICK)
    return tmp_path


def in_there(cut: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(cut / "prelude"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *arguments], cwd=cut, env=environment, capture_output=True, text=True)


def test_a_connection_is_refused_there(cut: Path) -> None:
    done = in_there(cut, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))")
    assert done.returncode != 0 and "Refused: socket.getaddrinfo" in done.stderr
    done = in_there(cut, "-c", "import socket; socket.socket().connect(('127.0.0.1', 9))")
    assert done.returncode != 0 and "Refused: socket.connect" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "devices",
        "profile --space fashion --device quick.yaml -o table.json",
        f"search --estimator ofa-mbv3-imagenet --latency {TABLE}:10 -o found.json",
        "explain ofa-mbv3-imagenet",
    ],
    ids=lambda command: command.split()[0],
)
def test_a_command_needs_no_network(command: str, cut: Path) -> None:
    done = in_there(cut, "-m", "deploynas", *command.split())
    assert done.returncode == 0, done.stderr
