"""One folder, one writer: whoever writes into a folder holds a lock of the operating system on a small file there.

The kernel lets go of the lock when the process that holds it ends, however it ends, so a crash leaves at most the file
behind, which locks nothing. A second command is refused at once. Where a file system has no locks (some network shares)
there is none here either, and a warning says so.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from deploynas.errors import DeployNASError
from deploynas.files import TEMPORARY

LOCK = ".lock"
# what a file system without locks answers
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


class FolderInUse(DeployNASError):
    """Another command writes there; nothing was done, and the same command will do later."""


@contextmanager
def writing_in(folder: Path, command: str) -> Iterator[None]:
    """Nobody else writes into this folder meanwhile; what writers that were killed have left half done is removed."""
    created = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _alone(folder / LOCK, folder, command):
            _remove_leftovers(folder)
            yield
    finally:
        if created:
            with suppress(OSError):  # nothing came of it; of a folder with anything in it this is refused
                folder.rmdir()


@contextmanager
def writing(path: Path, command: str) -> Iterator[None]:
    """The same for a single file, or for a folder that is replaced as a whole: the lock lies beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.with_name(f".{path.name}{LOCK}"), path, command):
        yield


# locks of this process: by file, which thread holds it, how often, and the open file. Commands are made of commands
_held: dict[Path, tuple[int, int, IO[bytes] | None]] = {}


@contextmanager
def _alone(lock: Path, what: Path, command: str) -> Iterator[None]:
    lock, thread = lock.parent.resolve() / lock.name, threading.get_ident()
    holder, depth, file = _held.get(lock, (thread, 0, None))
    if holder != thread:
        raise _in_use(what, command, os.getpid())
    if not depth:
        file = _locked(lock, what, command)
    _held[lock] = (thread, depth + 1, file)
    try:
        yield
    finally:
        if depth:
            _held[lock] = (thread, depth, file)
        elif _held.pop(lock, None) and file is not None:  # a forked child has none to let go of
            _release(lock, file)


def _locked(lock: Path, what: Path, command: str) -> IO[bytes] | None:
    """The locked file; None where there can be none."""
    while True:
        file = _opened(lock)
        if file is None:
            return None
        try:
            _acquire(file)
        except BlockingIOError:
            raise _in_use(what, *_holder(file)) from None
        except OSError as error:
            file.close()
            if error.errno not in NO_LOCKS:
                raise
            warnings.warn(
                f"{what}: its file system has no locks ({error.strerror}): let no other command write there",
                RuntimeWarning,
                stacklevel=5,
            )
            return None
        if _is_there(lock, file):
            break
        file.close()  # its holder has removed it between our two calls
    with suppress(OSError):  # a full disk: it locks without words, too
        document = {"schema": "deploynas/lock", "schema_version": 1, "pid": os.getpid(), "command": command}
        file.truncate(0)
        file.write(json.dumps(document).encode())
        file.flush()
    return file


def _opened(lock: Path) -> IO[bytes] | None:
    """None: no file can be made there; then nothing else can be written there either, and whoever tries will say so."""
    try:
        return lock.open("ab+")  # leaves what its holder wrote
    except FileNotFoundError:  # whoever had made the folder found nothing to put into it
        lock.parent.mkdir(parents=True, exist_ok=True)
        return _opened(lock)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    with suppress(OSError):
        return lock.open("rb")  # of another account; it can be locked all the same
    return None


def _is_there(lock: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), lock.stat())
    except FileNotFoundError:
        return False


def _release(lock: Path, file: IO[bytes]) -> None:
    """Remove it while it is ours: who opened it meanwhile sees that it is gone (see `_is_there`)."""
    with suppress(OSError):  # Windows: while others have it open
        lock.unlink()
    with suppress(OSError):
        file.close()
    with suppress(OSError):  # Windows: it could not go while we had it open
        if os.name == "nt":
            lock.unlink(missing_ok=True)


def _holder(file: IO[bytes]) -> tuple[str | None, int | None]:
    """Which command holds it, and its process, if they can be read."""
    with file, suppress(OSError, ValueError):
        file.seek(0)
        said = json.loads(file.read())
        if isinstance(said, dict):
            return said.get("command"), said.get("pid")
    return None, None


def _in_use(what: Path, command: str | None, pid: int | None) -> FolderInUse:
    who = f"`deploynas {command}`" if command else "another command"
    process = f", process {pid}" if pid is not None else ""
    return FolderInUse(
        f"{what} is in use: {who}{process} is writing there",
        hint="wait until it has ended, or choose another `--out`",
    )


def _remove_leftovers(folder: Path) -> None:
    """Temporary files (see `files.write_bytes`) whose process is gone; not deeper than a run keeps files of its own."""
    for depth in ("", "*/", "*/*/"):
        for path in folder.glob(f"{depth}.*{TEMPORARY}"):
            pid = path.name.removesuffix(TEMPORARY).rpartition(".")[2]
            if pid.isdigit() and not _runs(int(pid)):
                with suppress(OSError):
                    path.unlink()


def _runs(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid)


if os.name == "nt":  # which locks ranges of bytes, and lets nobody read them: one far behind the words
    import msvcrt

    def _acquire(file: IO[bytes]) -> None:
        file.seek(2**30)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            raise BlockingIOError(error.errno, error.strerror) from error
        file.seek(0)

else:
    import fcntl

    def _acquire(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _let_go_in_the_child() -> None:
        """A process that was forked has our open files, and a lock lives as long as any of them is open.

        Without this, those who read images for a training that was killed would hold its folder while they live.
        """
        for _, _, file in _held.values():
            if file is not None:
                file.close()
        _held.clear()

    os.register_at_fork(after_in_child=_let_go_in_the_child)
