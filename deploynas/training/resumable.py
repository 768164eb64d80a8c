"""Steps that can be interrupted: what they changed is saved every so often, when asked to stop, and at the end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Given = TypeVar("Given")


def run_steps(
    stream: Iterable[Given], step: Callable[[Given], None], save: Callable[[], None], save_every_s: float
) -> None:
    """A step for everything that the stream gives. Asked to stop, it finishes the step in hand and saves first."""
    saved = time.monotonic()
    with stop_requests() as stop_requested:
        for given in stream:
            step(given)
            if stop_requested():
                save()
                raise KeyboardInterrupt
            if time.monotonic() - saved > save_every_s:
                save()
                saved = time.monotonic()
    save()


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and a polite kill finish the step in hand first; a second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    requests: list[int] = []
    previous: dict[int, Any] = {}

    def note(number: int, frame: object) -> None:
        requests.append(number)
        for caught, handler in previous.items():
            signal.signal(caught, handler)

    for polite in (signal.SIGINT, signal.SIGTERM):
        previous[polite] = signal.signal(polite, note)
    try:
        yield lambda: bool(requests)
    finally:
        for caught, handler in previous.items():
            signal.signal(caught, handler)
