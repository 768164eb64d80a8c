"""What a command of the system prints, if it is there and answers in time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def output_of(call: Sequence[str], timeout_s: float) -> str | None:
    """None where there is no such command, where it fails, or where it hangs."""
    try:
        done = subprocess.run(call, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
