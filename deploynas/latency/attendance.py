"""Is anybody still waiting for this worker? Whoever asked keeps its stdin open, and may send signs of life.

With threads and blocking reads alone, since `select` takes pipes on POSIX systems only. Both threads wait in system
calls, so they take no time from what is measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

STDIN = 0
Ending = Callable[[], None]


def end_when_abandoned(end: Ending, silence_s: float | None = None, descriptor: int = STDIN) -> None:
    """Have `end` called once nobody is there: when stdin has closed or, if that is given, after this much silence.

    Reads the descriptor itself: a buffered stdin holds a lock that a process cannot end with.
    """
    heard = Heard()
    threading.Thread(target=_listen, args=(descriptor, heard, end), daemon=True).start()
    if silence_s is not None:
        threading.Thread(target=_watch, args=(heard, silence_s, end), daemon=True).start()


class Heard:
    """When the last sign of life came."""

    def __init__(self) -> None:
        self.at = time.monotonic()


def _listen(descriptor: int, heard: Heard, end: Ending) -> None:
    try:
        while os.read(descriptor, 4096):
            heard.at = time.monotonic()
    except OSError:  # the other end was killed
        pass
    end()


def _watch(heard: Heard, silence_s: float, end: Ending) -> None:
    while (left := heard.at + silence_s - time.monotonic()) > 0:
        time.sleep(left)
    end()
