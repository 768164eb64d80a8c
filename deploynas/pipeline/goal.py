"""What is asked of a network: a latency at most, an accuracy at least, or to be nearly as accurate as the best.

Asked for nothing, a search answers with the knee: the fastest network that is expected to be within one point of the
best. A frontier that is flat at its end makes any budget there a waste, and nobody knows beforehand where that is.
"""

from __future__ import annotations

from dataclasses import dataclass

from deploynas.errors import InputError
from deploynas.pipeline.limits import require_budget

KNEE = 0.01  # of accuracy: how far below the best the knee may be


@dataclass(frozen=True)
class AtMost:
    """The most accurate network within a latency."""

    latency_ms: float

    def __post_init__(self) -> None:
        require_budget(self.latency_ms)


@dataclass(frozen=True)
class Reaching:
    """The fastest network that is expected to have an accuracy."""

    accuracy: float  # 0..1

    def __post_init__(self) -> None:
        if not 0 < self.accuracy <= 1:
            raise InputError(
                f"an accuracy to reach is a fraction above 0 and at most 1, got {self.accuracy:g}",
                hint="`--min-accuracy 0.77` for 77 %",
            )


@dataclass(frozen=True)
class NearBest:
    """The fastest network that is expected to be within so much of the most accurate one."""

    within: float = KNEE  # of accuracy: 0.01 is one point

    def __post_init__(self) -> None:
        if not 0 <= self.within < 1:
            raise InputError(
                f"how far below the best a network may be is 0 or more and below 100 points, got {100 * self.within:g}",
                hint="`--within 1.0` for one point",
            )


Goal = AtMost | Reaching | NearBest


def one_goal(max_latency_ms: float | None, min_accuracy: float | None, within_points: float | None) -> Goal | None:
    """As the options `--max-latency-ms`, `--min-accuracy` and `--within` say it: one of them, or none."""
    given = {"--max-latency-ms": max_latency_ms, "--min-accuracy": min_accuracy, "--within": within_points}
    asked = [f"`{name}`" for name, value in given.items() if value is not None]
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)} each decide how fast the network is to be", hint="give one of them")
    if max_latency_ms is not None:
        return AtMost(require_budget(max_latency_ms, "`--max-latency-ms`"))
    if min_accuracy is not None:
        return Reaching(min_accuracy)
    if within_points is not None:
        return NearBest(within_points / 100)
    return None
