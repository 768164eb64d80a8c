"""Waiting for a quieter moment: only when a busy machine misses a budget, and the quietest measurement counts."""

from __future__ import annotations

import pytest
from timings import timing

from deploynas.device import Device
from deploynas.pipeline import patience
from deploynas.pipeline.patience import patiently

DEVICE = Device(name="shared", provider="cpu")


class Result:
    """Of a bench, as far as patience looks."""

    def __init__(self, quiet_ms: float, p50_ms: float) -> None:
        self.timing = timing(quiet_ms, p50_ms)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that passes only while somebody sleeps."""
    now = [0.0]
    monkeypatch.setattr(patience.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(patience.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))


def tried(*latencies: tuple[float, float], budget_ms: float | None = 10.0, patience_s: float = 100.0):
    """The clock's median that counts, and how many measurements do not."""
    left = iter(latencies)
    counts, waits = patiently(lambda: Result(*next(left)), DEVICE, budget_ms, patience_s)  # type: ignore[arg-type, return-value]
    return counts.timing.clock.p50_ms, len(waits)


def test_what_is_held_is_measured_once() -> None:
    assert tried((8, 9)) == (9, 0)


def test_a_busy_machine_is_measured_until_it_is_quiet() -> None:
    assert tried((8, 15), (8, 13), (8, 8.2)) == (8.2, 2)


def test_a_slow_network_is_not_waited_for_however_busy_the_machine_is() -> None:
    assert tried((12, 12.2)) == (12.2, 0)
    assert tried((12, 20)) == (20, 0)


def test_when_the_patience_ends_the_quietest_counts_even_if_another_seemed_faster() -> None:
    assert tried((8, 15), (8.1, 12), (7, 12.5), (8, 14), patience_s=12.0) == (12, 3)


def test_without_a_budget_nothing_is_waited_for() -> None:
    assert tried((8, 20), budget_ms=None) == (20, 0)
