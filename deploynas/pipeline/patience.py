"""A busy machine may miss a budget that it would keep: measure again at a quieter moment, for as long as one may wait.

Which measurement counts is decided by how disturbed the machine was, not by how fast the network seemed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from deploynas.device import Device
from deploynas.outcome import outcome_of
from deploynas.pipeline.verdict import TimedFiles
from deploynas.timing import Timing

PAUSE_S = 5.0
QUIET = 1.05  # a machine not slower than that many times undisturbed is not worth waiting for


def patiently(
    measure: Callable[[], TimedFiles], device: Device, budget_ms: float | None, patience_s: float
) -> tuple[TimedFiles, list[TimedFiles]]:
    """The measurement that counts, and those before it that were made on a busier machine."""
    made, started = [measure()], time.monotonic()
    while budget_ms is not None and worth_waiting(made[-1].timing, budget_ms, device):
        left = patience_s - (time.monotonic() - started)
        if left <= 0:
            break
        time.sleep(min(PAUSE_S, left))
        made.append(measure())
    quietest = min(made, key=lambda timed: timed.timing.disturbance)
    return quietest, [timed for timed in made if timed is not quietest]


def worth_waiting(timing: Timing, budget_ms: float, device: Device) -> bool:
    """The budget is not held, others computed meanwhile, and without them it might be."""
    might_be_held = timing.undisturbed.interval_ms[0] <= budget_ms
    return might_be_held and outcome_of(timing, budget_ms, device.budget) != "held" and timing.disturbance > QUIET
