"""The budget is a promise about the device: measure whole, tighten by what was observed, try again (DESIGN 5).

A network measured at m ms against a budget of T ms was asked for at most t ms of the table's. The table is off by about
the same ratio for the next network, so that one is asked for a little less than t * T / m.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from deploynas.errors import GateError

What = TypeVar("What")
SAFETY = 0.995  # a miss by a hair still has to move the target, or the same network comes back


@dataclass(frozen=True)
class Attempt(Generic[What]):
    """One network: what the table was asked for and promised, and what the device said."""

    target_ms: float
    predicted_ms: float | None
    measured_ms: float
    what: What


def within_budget(
    budget_ms: float, attempt: Callable[[float], Attempt[What]], rounds: int
) -> tuple[Attempt[What], ...]:
    """All attempts, of which the last one is within the budget; `GateError` if none of them is."""
    target, attempts = budget_ms, list[Attempt[What]]()
    while len(attempts) < rounds:
        try:
            made = attempt(target)
        except GateError as error:
            if not attempts:
                raise
            raise _missed(budget_ms, attempts, f"; tightened to {target:.4g} ms, {error.message}") from error
        attempts.append(made)
        if made.measured_ms <= budget_ms:
            return tuple(attempts)
        # the solver may have left some of the target unused: what it used is what has to shrink
        used = min(target, made.predicted_ms) if made.predicted_ms else target
        target = used * SAFETY * budget_ms / made.measured_ms
    raise _missed(budget_ms, attempts, "")


def _missed(budget_ms: float, attempts: list[Attempt[What]], why: str) -> GateError:
    best = min(attempts, key=lambda made: made.measured_ms)
    tried = f"{len(attempts)} network{'s' if len(attempts) > 1 else ''}"
    return GateError(
        f"the budget of {budget_ms:.4g} ms is not met: the fastest of {tried} took {best.measured_ms:.4g} ms{why}",
        hint="more --rounds, a larger budget, or a quieter machine",
    )
