"""Workers on another machine, through the system's `ssh`, and what it means when one ends without having answered.

Keys, ports, jump hosts and everything else are the user's own `~/.ssh/config`. Nothing is ever asked at the keyboard.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deploynas import __version__
from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.worker import ABANDONED, Request
from deploynas.latency.worker_process import WorkerProcess, answer

# no question, and a dead link is noticed within 15 seconds
OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
BEAT_S = 5.0  # between signs of life that we send
SILENCE_S = 20.0  # after which a worker takes us for gone, though nobody told it


class LostConnection(DeployNASError):
    """The connection ended, or could not be made; the next attempt may succeed."""


@dataclass(frozen=True)
class Host:
    """A machine, as `ssh` knows it, and the command of its Python."""

    name: str
    python: str

    @classmethod
    def of(cls, device: Device) -> Host:
        if device.host is None:
            raise ValueError(f"device `{device.name}` is this machine")
        return cls(device.host, device.python)

    @property
    def pip(self) -> str:
        """What a person types to install packages there."""
        return f"ssh {self.name} {self.python} -m pip"

    @property
    def install(self) -> str:
        return f"`{self.pip} install deploynas=={__version__}`"

    @contextmanager
    def worker(self, request: Request, beating: bool = True) -> Iterator[RemoteWorker]:
        """A worker over there. Raises what has gone wrong unless it has ended well when all is read."""
        options = [word for option in OPTIONS for word in ("-o", option)]
        command = ["ssh", "-T", *options, self.name, f"{self.python} -m deploynas.latency.worker"]
        # a file: a connection that `ssh` shares among commands would keep a pipe open for as long as it lives
        with tempfile.TemporaryFile() as stderr:
            try:
                process = WorkerProcess(command, request, stderr, BEAT_S if beating else None)
            except FileNotFoundError as error:
                raise InputError(
                    "there is no `ssh` here", hint="install the OpenSSH client (Debian: `apt install openssh-client`)"
                ) from error

            def complaint() -> str:
                stderr.seek(0)
                return stderr.read().decode(errors="replace").strip()

            with process:
                yield RemoteWorker(self, process, complaint)


@dataclass(frozen=True)
class RemoteWorker:
    host: Host
    process: WorkerProcess
    complaint: Callable[[], str]

    def answers(self) -> Iterator[dict[str, Any]]:
        """Everything it says, until it ends; how it ended is raised if not well."""
        for line in self.process.lines():
            if not line.endswith(b"\n"):
                break  # cut; the exit code says by whom
            if not line.startswith(b"{"):
                said = line.decode(errors="replace").strip()
                raise InputError(
                    f"`{self.host.name}` prints `{said[:80]}` where only the measuring process may speak",
                    hint=f"`ssh {self.host.name} true` must print nothing: look into its `~/.bashrc`",
                )
            yield answer(line)
        code = self.process.process.wait()
        if code != 0:
            raise failure(self.host, code, self.complaint())

    def answer(self) -> dict[str, Any]:
        """The one thing it says."""
        said = list(self.answers())
        if len(said) != 1:
            raise InputError(
                f"`{self.host.python}` on `{self.host.name}` does not answer as a Python with deploynas does",
                hint="write the Python of the target into the device file, for example `python: ~/venv/bin/python`",
            )
        return said[0]


def failure(host: Host, code: int, complaint: str) -> DeployNASError:
    """What it means that `ssh` has ended with this code, having said this on stderr."""
    if code == 255 or code < 0 or code == ABANDONED:
        return _no_connection(host, complaint)
    if code in (126, 127):
        return InputError(
            f"`{host.name}` has no command `{host.python}`",
            hint="write the Python of the target into the device file, for example `python: ~/venv/bin/python`",
        )
    missing = re.search(r"No module named '?([\w.]+)", complaint)
    if missing and missing[1].partition(".")[0] == "deploynas":
        return InputError(f"`{host.name}` has no deploynas {__version__} in `{host.python}`", hint=host.install)
    if missing:
        return InputError(f"`{host.name}` has no package `{missing[1]}` in `{host.python}`", hint=host.install)
    if "ValidationError" in complaint:
        return InputError(
            f"`{host.name}` has another version of deploynas, which does not understand {__version__}",
            hint=host.install,
        )
    last = complaint.splitlines()[-1] if complaint else "it said nothing"
    return DeployNASError(
        f"the measuring process on `{host.name}` ended with code {code}: {last}",
        hint="the same command resumes where it stopped",
    )


def _no_connection(host: Host, complaint: str) -> DeployNASError:
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in complaint:
        return InputError(
            f"`{host.name}` is not the machine that this name belonged to: its host key has changed",
            hint=f"if it was set up anew: `ssh-keygen -R {host.name}`, then `ssh {host.name} true`",
        )
    if "Host key verification failed" in complaint:
        return InputError(
            f"the host key of `{host.name}` is not known here",
            hint=f"`ssh {host.name} true` once; it shows the key and asks",
        )
    if "Permission denied" in complaint:
        return InputError(f"`{host.name}` accepts no key from here", hint=f"`ssh-copy-id {host.name}`")
    if "Bad configuration option" in complaint or "terminating," in complaint:
        return InputError(f"`ssh` does not accept its configuration: {complaint.splitlines()[0]}")
    last = complaint.splitlines()[-1].strip() if complaint else "the connection was closed"
    return LostConnection(f"no connection to `{host.name}`: {last}", hint=f"`ssh {host.name} true` must succeed")
