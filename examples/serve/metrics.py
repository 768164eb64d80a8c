"""What the service counts and measures, in the text format that Prometheus reads. Touched by the event loop alone."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bundle import Promise

SECONDS = tuple(factor * 10.0**power for power in range(-5, 2) for factor in (1, 2, 5))  # 10 us to 50 s
TIMES_PROMISED = (0.5, 0.8, 0.9, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)  # of the undisturbed latency
STATM = Path("/proc/self/statm")


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = sorted(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        total, inside = 0, f"{labels}," if labels else ""
        for bound, count in zip([*self._bounds, float("inf")], self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{inside}le="{"+Inf" if bound == float("inf") else f"{bound:.6g}"}"}} {total}'
        around = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{around} {self._sum:.9g}"
        yield f"{name}_count{around} {total}"


class ServiceMetrics:
    def __init__(self, promise: Promise | None) -> None:
        self._promise = promise
        near = tuple(share * promise.undisturbed_ms / 1000 for share in TIMES_PROMISED) if promise else ()
        self._answers: Counter[tuple[str, int]] = Counter()
        self._requests: dict[str, Histogram] = {}
        self._steps = {name: Histogram(SECONDS) for name in ("queue", "decode")}
        self._inference = Histogram(tuple(sorted({*SECONDS, *near})))
        self._rows: Counter[int] = Counter()
        self._over_budget = 0

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._answers[route, status] += 1
        if status < 400:
            self._requests.setdefault(route, Histogram(SECONDS)).add(seconds)

    def computed(self, queue_ms: float, decode_ms: float, infer_ms: float, rows: int) -> None:
        self._steps["queue"].add(queue_ms / 1000)
        self._steps["decode"].add(decode_ms / 1000)
        self._inference.add(infer_ms / 1000)
        self._rows[rows] += 1
        if self._promise and self._promise.budget_ms and infer_ms > self._promise.budget_ms:
            self._over_budget += 1

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """`gauges`: what the service says of itself now, by name: what it is, and the value."""
        return "\n".join([*self._counted(), *self._measured(), *self._promised(), *_gauges(gauges), ""])

    def _counted(self) -> Iterator[str]:
        yield from _head("http_requests_total", "counter", "Answers, by route and status.")
        for (route, status), count in sorted(self._answers.items()):
            yield f'http_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _head("inference_rows_total", "counter", "Inferences a client took part in, by images in the batch.")
        for rows, count in sorted(self._rows.items()):
            yield f'inference_rows_total{{rows="{rows}"}} {count}'
        yield from _head("inference_over_budget_total", "counter", "Inferences that took longer than the budget.")
        yield f"inference_over_budget_total {self._over_budget}"

    def _measured(self) -> Iterator[str]:
        yield from _head("http_request_seconds", "histogram", "From headers to answer, of requests that succeeded.")
        for route, times in sorted(self._requests.items()):
            yield from times.lines("http_request_seconds", f'route="{route}"')
        yield from _head("step_seconds", "histogram", "Waiting for a thread, and decoding.")
        for step, times in self._steps.items():
            yield from times.lines("step_seconds", f'step="{step}"')
        yield from _head("inference_seconds", "histogram", "The call of the runtime, for the whole batch.")
        yield from self._inference.lines("inference_seconds")

    def _promised(self) -> Iterator[str]:
        if self._promise is None:
            return
        told = self._promise
        yield from _head("promised_inference_seconds", "gauge", "What the bundle's report says of an inference.")
        for name in ("undisturbed", "p50", "p90", "p99"):
            yield f'promised_inference_seconds{{latency="{name}"}} {getattr(told, f"{name}_ms") / 1000:.6g}'
        if told.budget_ms:
            yield from _head("budget_seconds", "gauge", "The budget that the bundle was made for.")
            yield f"budget_seconds {told.budget_ms / 1000:.6g}"


def _gauges(gauges: dict[str, tuple[str, float]]) -> Iterator[str]:
    for name, (what, value) in gauges.items():
        yield from _head(name, "gauge", what)
        yield f"{name} {value:.15g}"
    resident = resident_bytes()
    if resident is not None:
        yield from _head("process_resident_memory_bytes", "gauge", "Memory of the process.")
        yield f"process_resident_memory_bytes {resident}"
    yield from _head("process_cpu_seconds_total", "counter", "Processor time of the process.")
    yield f"process_cpu_seconds_total {time.process_time():.3f}"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"


def resident_bytes() -> int | None:
    """Where the system tells it in a file."""
    if not STATM.exists():
        return None
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
