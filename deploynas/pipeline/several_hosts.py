"""Work on several devices: on different machines at the same time, on one machine one after the other.

Machines are told apart by the `host` of the device files. Two names of one machine are two machines here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.progress import OnProgress

Result = TypeVar("Result")
Work = Callable[[Device, OnProgress], Result]


class _Stopped(Exception):
    """Nobody waits any more."""


def on_every_device(
    devices: Sequence[Device], work: Work[Result], progress: Sequence[OnProgress]
) -> list[Result | DeployNASError]:
    """What the work on each device came to, in their order. An error of one does not stop the others."""
    found: dict[int, Result | DeployNASError] = {}
    bugs: list[BaseException] = []
    stopped = threading.Event()

    def one_after_the_other(places: Sequence[int]) -> None:
        try:
            for i in places:
                try:
                    found[i] = work(devices[i], _until(stopped, progress[i]))
                except DeployNASError as error:
                    found[i] = error
        except _Stopped:
            pass
        except BaseException as bug:
            bugs.append(bug)

    by_host: dict[str | None, list[int]] = {}
    for i, device in enumerate(devices):
        by_host.setdefault(device.host, []).append(i)
    if len(by_host) == 1:  # here, so that Ctrl-C ends the work itself, with everything that it puts in order
        one_after_the_other(range(len(devices)))
        if bugs:
            raise bugs[0]
        return [found[i] for i in range(len(devices))]
    # daemons: when this process is to end, it does not wait for them, and their workers end with it
    threads = [threading.Thread(target=one_after_the_other, args=(own,), daemon=True) for own in by_host.values()]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stopped.set()
    if bugs:
        raise bugs[0]
    return [found[i] for i in range(len(devices))]


def _until(stopped: threading.Event, on_progress: OnProgress) -> OnProgress:
    def report(fraction: float, what: str) -> None:
        if stopped.is_set():
            raise _Stopped
        on_progress(fraction, what)

    return report


def one_error(failed: Sequence[tuple[Device, DeployNASError]]) -> DeployNASError:
    """All of them as one, of the first one's kind."""
    [(_, first), *others] = failed
    if not others:
        return first
    hints = [f"{device.name}: {error.hint}" for device, error in failed if error.hint]
    return type(first)(
        "\n".join(f"{device.name}: {error.message}" for device, error in failed), hint="\n".join(hints) or None
    )
