"""What a person is told when the machine, not the command, is at fault: a full disk, missing rights, a broken disk."""

from __future__ import annotations

import errno

ANYWHERE = "what was done before is kept, and the same command continues"
HINTS = {
    errno.ENOSPC: f"make room; {ANYWHERE}",
    errno.EDQUOT: f"make room within your quota; {ANYWHERE}",
    errno.EFBIG: "the file system or a limit of the account does not allow files of that size",
    errno.EACCES: "another folder, or the rights to read and write there",
    errno.EPERM: "another folder, or the rights to read and write there",
    errno.EROFS: "another folder; this one can only be read",
    errno.EIO: "the disk, or the connection to it, is broken",
    errno.ESTALE: "the network share has gone away and come back; repeat the command",
    errno.ENOTCONN: "the network share has gone away",
    errno.EMFILE: "too many open files: `ulimit -n 4096`",
    errno.ENFILE: "too many open files on this machine",
    errno.ENAMETOOLONG: "a shorter name",
    errno.ENOTDIR: "something on the way there is a file, not a folder",
    errno.EISDIR: "there is a folder where a file is wanted; another name",
    errno.EEXIST: "there is a file where a folder is wanted; another name",
    errno.ENOMEM: f"end other programs; {ANYWHERE}",
}


def machine_fault(error: OSError) -> tuple[str, str] | None:
    """Message and hint; None for what a command should have foreseen, which is a bug and wants its traceback."""
    if error.errno not in HINTS:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}", HINTS[error.errno]
