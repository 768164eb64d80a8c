"""A machine elsewhere: a real `sshd` on the loopback, with its own port, keys and configuration of `ssh`."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploynas.device import Device

ROOT = Path(__file__).parent.parent


class NoServer(Exception):
    """There is no `sshd` to try it with."""


SSHD = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
SSH = """
Host nowhere
  Port {closed_port}
Host stranger
  IdentityFile {folder}/strangers_key
Host board twin nowhere unknown changed
  IdentityFile {folder}/key
Host unknown
  UserKnownHostsFile {folder}/no_hosts
Host changed
  UserKnownHostsFile {folder}/changed_hosts
Host board twin nowhere stranger unknown changed
  HostName 127.0.0.1
  Port {port}
  User {user}
  HostKeyAlias board
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


@dataclass(frozen=True)
class Board:
    """`board`, and `twin`, which is the same machine by another name."""

    folder: Path
    server: psutil.Process

    @property
    def python(self) -> str:
        """Its Python: this one, with a cache and a home of its own."""
        return f"env PYTHONPATH={ROOT} HOME={self.folder}/home XDG_CACHE_HOME= {sys.executable}"

    @property
    def path(self) -> str:
        """A PATH on which `ssh` knows the board."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    @property
    def models(self) -> Path:
        return self.folder / "home" / ".cache" / "deploynas" / "models"

    def device(self, like: Device, host: str = "board", **changes: object) -> Device:
        return like.model_copy(update={"host": host, "python": self.python, **changes})

    def workers(self) -> list[psutil.Process]:
        """Processes that measure on the board."""
        found = self.server.children(recursive=True)
        return [process for process in found if "deploynas.latency.worker" in _command(process)]

    def cut(self) -> list[psutil.Process]:
        """End all connections, from the side of the board; nobody tells the workers, which are returned."""
        workers = self.workers()
        for process in self.server.children(recursive=True):
            if "deploynas.latency.worker" not in _command(process):
                with suppress(psutil.NoSuchProcess):  # it ended with the one before
                    process.kill()
        return workers


def _command(process: psutil.Process) -> list[str]:
    """Words of its command; the shell that starts it has the module's name inside a longer one."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def running_board(folder: Path) -> Iterator[Board]:
    """With everything it needs in an empty folder."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh") is None:
        raise NoServer("no OpenSSH server and client here (Debian: `apt install openssh-server`)")
    for name in ("host_key", "key", "strangers_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "known_hosts").write_text(f"board {(folder / 'host_key.pub').read_text()}")
    (folder / "changed_hosts").write_text(f"board {(folder / 'strangers_key.pub').read_text()}")
    (folder / "home").mkdir()
    words = {"folder": folder, "port": free_port(), "closed_port": free_port(), "user": getpass.getuser()}
    (folder / "sshd_config").write_text(SSHD.format(**words))
    (folder / "ssh_config").write_text(SSH.format(**words))
    (folder / "bin").mkdir()
    wrapper = folder / "bin" / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # which the server insists on
    server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        tried = subprocess.run(
            [wrapper, "-o", "ConnectionAttempts=30", "board", "true"], capture_output=True, text=True
        )
        if tried.returncode != 0:
            raise NoServer(f"an sshd of its own does not let this account in: {tried.stderr.strip()}")
        yield Board(folder, psutil.Process(server.pid))
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
