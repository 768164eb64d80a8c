"""One case under watch: how it ended, in what time and memory, which new lines it reached, and what it touched.

Watched are exceptions (a file may end in a refusal with exit code 2 alone), processor time, memory,
and by Python's audit hook every file that is opened to be written, every process that is started and every connection.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from deploynas.errors import DeployNASError

TIME_LIMIT_S = 10.0  # of the processor: a busy machine is not the fault of a file
MEMORY_LIMIT = 1 << 30
LONGEST_MESSAGE = 4000  # a hand-written file may have twenty mistakes, a line each
LINES = 40
PACKAGE = str(Path(__file__).parents[2] / "deploynas")

WRITES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod")
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pty.spawn")


class TooSlow(BaseException):
    """Not an `Exception`, so that no reader takes it for a damaged file."""


@dataclass(frozen=True)
class Ending:
    """`accepted`, `refused`, or what went wrong."""

    how: str
    words: str = ""
    new_lines: int = 0

    @property
    def failed(self) -> bool:
        return self.how not in ("accepted", "refused")


class Watch:
    """Installed once a process: an audit hook cannot be taken away."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.on = False
        self.touched: list[str] = []
        self.lines: set[tuple[str, int]] = set()
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, self._alarm)

    def limit_memory(self) -> None:
        """From here on, the process may grow by so much; called when everything is imported."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_LIMIT
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def run(self, read: Callable[[], object], trace: bool = True, patience: float = 1.0) -> Ending:
        known, self.touched, self.on = len(self.lines), [], True
        signal.setitimer(signal.ITIMER_PROF, patience * TIME_LIMIT_S)
        if trace:
            sys.settrace(self._traced)
        try:
            read()
            how, words = "accepted", ""
        except DeployNASError as error:
            how, words = _judged(error)
        except TooSlow:
            how, words = "hang", f"more than {TIME_LIMIT_S:g} s\n{_place(sys.exc_info()[2])}"
        except MemoryError:
            how, words = "memory", f"more than 1 GiB\n{_place(sys.exc_info()[2])}"
        except BaseException as error:
            how, words = "traceback", f"{type(error).__name__}: {str(error)[:200]}\n{_place(error.__traceback__)}"
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.on = False
        if self.touched:
            how, words = "touched", "; ".join(self.touched[:3])
        return Ending(how, words, len(self.lines) - known)

    def _alarm(self, signum: int, frame: FrameType | None) -> None:
        raise TooSlow

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = any(c in (mode or "") for c in "wax+") or bool(
                (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
            if writes and isinstance(path, (str, bytes)) and not self._inside(path):
                self.touched.append(f"opened {path!r} to write")
        elif event in WRITES:
            for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
                if isinstance(path, (str, bytes)) and not self._inside(path):
                    self.touched.append(f"{event} {path!r}")
        elif event in RUNS:
            self.touched.append(f"{event} {arguments[:1]!r}")

    def _inside(self, path: str | bytes) -> bool:
        found = Path(os.fsdecode(path))
        return found == Path("/dev/null") or found.absolute().resolve().is_relative_to(self.folder)

    def _traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def _judged(error: DeployNASError) -> tuple[str, str]:
    """A refusal is an error of input, said in a paragraph that a terminal can show."""
    said = error.message + (f"\nhint: {error.hint}" if error.hint else "")
    if error.exit_code != 2:
        return "exit code", f"{error.exit_code}: {said[:300]}\n{_place(error.__traceback__)}"
    if len(said) > LONGEST_MESSAGE or said.count("\n") > LINES or "\n\n" in said or not error.message.strip():
        return "message", f"{len(said)} characters, {said.count(chr(10))} line ends: {said[:300]!r}"
    if not all(c.isprintable() or c == "\n" for c in said):
        return "message", f"characters that a terminal obeys: {said[:300]!r}"
    return "refused", said


def _place(found: Any) -> str:
    """Where it happened: the last line of ours, and the last at all. Failures of one place are one failure."""
    frames = traceback.extract_tb(found)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    return " ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in [*ours[-1:], *frames[-1:]])
