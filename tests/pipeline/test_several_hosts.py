from __future__ import annotations

import threading

import pytest

from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.pipeline.several_hosts import on_every_device, one_error
from deploynas.progress import OnProgress, silent


def device(name: str, host: str | None = None) -> Device:
    return Device(name=name, provider="cpu", host=host)


def test_hosts_work_at_the_same_time() -> None:
    """Each waits until all three have begun: one after the other, none would ever end."""
    everybody = threading.Barrier(3, timeout=60)

    def work(one: Device, on_progress: OnProgress) -> str:
        everybody.wait()
        return one.name

    devices = [device("here"), device("a", "board"), device("b", "me@other")]
    assert on_every_device(devices, work, [silent] * 3) == ["here", "a", "b"]


def test_one_machine_does_one_thing_at_a_time() -> None:
    free, order = threading.Lock(), []

    def work(one: Device, on_progress: OnProgress) -> None:
        assert free.acquire(blocking=False), "two at the same time"
        order.append(one.name)
        free.release()

    on_every_device([device(name, "board") for name in "abc"], work, [silent] * 3)
    assert order == ["a", "b", "c"]


def test_an_error_of_one_leaves_the_others_alone() -> None:
    def work(one: Device, on_progress: OnProgress) -> str:
        if one.name != "b":
            raise InputError(f"{one.name} is asleep", hint=f"wake {one.name}")
        return "done"

    devices = [device("a", "x"), device("b", "x"), device("c")]
    a, b, c = on_every_device(devices, work, [silent] * 3)
    assert b == "done" and isinstance(a, InputError) and isinstance(c, InputError)
    assert one_error([(devices[0], a)]) is a
    both = one_error([(devices[0], a), (devices[2], c)])
    assert isinstance(both, InputError)
    assert both.message == "a: a is asleep\nc: c is asleep" and both.hint == "a: wake a\nc: wake c"


def test_a_bug_is_not_taken_for_a_result() -> None:
    def work(one: Device, on_progress: OnProgress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_every_device([device("a")], work, [silent])


def test_work_on_one_machine_is_interrupted_itself() -> None:
    """So that it closes what it has open: its lock, its journal, its worker."""

    def work(one: Device, on_progress: OnProgress) -> None:
        assert threading.current_thread() is threading.main_thread()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_every_device([device("a"), device("b")], work, [silent] * 2)


def test_who_is_interrupted_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first host is waited for, and Ctrl-C comes then; the second stops where it next says how far it is."""
    started, interrupted, over = threading.Event(), threading.Event(), threading.Event()

    def work(one: Device, on_progress: OnProgress) -> None:
        try:
            started.set()
            interrupted.wait(60)
            on_progress(0.5, "half")
            raise DeployNASError("went on")
        finally:
            over.set()

    def join(thread: threading.Thread) -> None:
        started.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "join", join)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        on_every_device([device("a"), device("b", "board")], work, [lambda fraction, what: said.append(what)] * 2)
    interrupted.set()
    assert over.wait(60) and not said
