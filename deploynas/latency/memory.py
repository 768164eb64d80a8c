"""The memory of this process: how much it has, and the most it had."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak_memory() -> int:
    """Count the peak from now on, where the system can; bytes in memory now."""
    import psutil

    with suppress(OSError):  # then it stays what imports took, and a small model does not show
        _CLEAR.write_text("5")  # Linux: forget the peak
    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """The most bytes this process had in memory."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    import psutil

    found = psutil.Process().memory_info()
    return int(getattr(found, "peak_wset", found.rss))  # Windows knows its peak, others what they have now
