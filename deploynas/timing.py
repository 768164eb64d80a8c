"""What a model takes on a machine, twice: as a clock saw it, and as it would be if nobody else computed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from deploynas.recorded import Count, Finite, NotNegative, Positive, Uncertainty

Interval = tuple[Uncertainty, Uncertainty]  # 95 %

HOW = {
    "own": "the fastest 5 % of its inferences, without the time in which other programs had the core",
    "references": "its median, without the slowdown that reference blocks beside it suffered at the same moments",
}


class Clock(BaseModel):
    """On the machine as it was, whoever else used it: milliseconds of one inference."""

    p50_ms: Positive
    p90_ms: Positive
    p99_ms: Positive
    mean_ms: Positive
    p50_interval_ms: Interval
    spread: NotNegative  # from the fastest tenth to the slowest tenth, over the median
    inferences: Count
    processes: Count
    warmups: Count  # inferences before each group of timed ones, not timed

    def at(self, percentile: str) -> float:
        """`p50`, `p90` or `p99`."""
        return float({"p50": self.p50_ms, "p90": self.p90_ms, "p99": self.p99_ms}[percentile])


class Undisturbed(BaseModel):
    """What it takes when nobody else computes."""

    latency_ms: Positive
    interval_ms: Interval
    how: Literal["own", "references"]  # it was found; `HOW` says it in words

    @property
    def relative_error(self) -> float:
        """Half-width of the interval, over the latency."""
        low, high = self.interval_ms
        return (high - low) / 2 / self.latency_ms


class Loading(BaseModel):
    """What it takes until a model is ready, in a process that had loaded no other."""

    load_ms: NotNegative  # from the file to a session
    first_ms: NotNegative  # the first inference, which allocates
    # what `session.run` with arrays, from Python, adds to an inference; None: not measured
    call_ms: Finite | None = None
    peak_memory_bytes: int  # of the whole process up to then, Python and the runtime included
    model_memory_bytes: int  # how far that is above what the process had before the model


class Timing(BaseModel):
    """A whole file, measured: always by the same procedure, whoever asks."""

    clock: Clock
    undisturbed: Undisturbed
    loading: Loading | None = None
    stable: bool  # the interval of `undisturbed` is within ± `stable_within` of it
    stable_within: Positive

    @property
    def call_ms(self) -> float:
        """What `session.run` adds for a caller; 0 if it was not measured."""
        return (self.loading.call_ms or 0.0) if self.loading else 0.0

    @property
    def disturbance(self) -> float:
        """By what factor the machine as it was, at the median, was slower than undisturbed."""
        return max(1.0, self.clock.p50_ms / self.undisturbed.latency_ms)

    @property
    def stability(self) -> str:
        """The rule and what came out, for people."""
        found = f"± {100 * self.undisturbed.relative_error:.1f} %"
        return f"{'stable' if self.stable else 'not stable'} ({found}, at most ± {100 * self.stable_within:g} % is)"
