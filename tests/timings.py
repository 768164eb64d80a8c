"""Made-up timings of a file."""

from __future__ import annotations

from deploynas.timing import Clock, Timing, Undisturbed


def timing(quiet_ms: float, p50_ms: float, more_ms: float = 0.0) -> Timing:
    """Both latencies; the clock's p90 is `more_ms` above its median, and its p99 is three times that."""
    return Timing(
        clock=Clock(
            p50_ms=p50_ms,
            p90_ms=p50_ms + more_ms,
            p99_ms=3 * p50_ms,
            mean_ms=p50_ms,
            p50_interval_ms=(p50_ms, p50_ms),
            spread=0.1,
            inferences=300,
            processes=6,
            warmups=2,
        ),
        undisturbed=Undisturbed(latency_ms=quiet_ms, interval_ms=(quiet_ms, quiet_ms), how="own"),
        stable=True,
        stable_within=0.03,
    )
