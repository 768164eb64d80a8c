"""How a whole file is timed: the one procedure behind `bench`, `export` and `check`.

Fresh processes, in each of them the files and sixteen reference blocks, visited in random order. The clock's figures
are of the raw samples. What a file takes undisturbed is the fastest twentieth of its own samples, which a plain loop
around it finds as well. Long inferences may never run undisturbed; the references do, and where they say that all of a
file's samples were slowed down, its median without that slowdown counts instead. Intervals come from drawing whole
processes again: what samples of one process share, such as the layout of its memory, is in them. That of the
undisturbed latency covers both ways to find it, for either may be wrong: the fastest twentieth is too much where even
that was disturbed, and the corrected median too little where the references suffered more than the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.device import Device
from deploynas.latency.entries import REFERENCE_SPACE, reference_entries
from deploynas.latency.entry import Entry
from deploynas.latency.measure import visit
from deploynas.latency.speed import UNDISTURBED, slowdowns
from deploynas.latency.statistic import draws, half_width
from deploynas.latency.table import Measurement, computed
from deploynas.latency.target import target_of
from deploynas.latency.worker import Visit, warmups
from deploynas.progress import OnProgress, Progress, silent
from deploynas.space import Space
from deploynas.timing import Clock, Interval, Loading, Timing, Undisturbed

PROCESSES = 6
VISITS = 20  # of one process to each file and each reference: many moments, so that some of them are quiet
REFERENCE_RUNS = 4
VISIT_MS = 1.0  # short models are timed more often in a visit, up to ten times


@dataclass(frozen=True)
class TimedFile:
    """All visits to one file, and what they say."""

    measurement: Measurement
    timing: Timing
    processes: tuple[int, ...]  # which one made each visit


def time_files(
    files: Sequence[Entry], device: Device, runs: int, *, seed: int = 0, on_progress: OnProgress = silent
) -> list[TimedFile]:
    """At least `runs` timed inferences of each file, all files interleaved."""
    space = Space.load(REFERENCE_SPACE)
    # only where something is taken out of a latency: elsewhere they would tell nothing, and a small chip takes seconds
    needed = reference_entries(space) if device.undisturbed else []
    references = [one.model_copy(update={"runs": REFERENCE_RUNS}) for one in needed]
    processes = max(PROCESSES, len(files))
    wanted = {entry.key: VISITS for entry in [*files, *references]}
    effort = device.effort.model_copy(update={"min_visit_ms": VISIT_MS, "runs": -(-runs // (processes * VISITS))})
    progress = Progress(on_progress)
    target = target_of(device.model_copy(update={"effort": effort}), progress.waiting)
    made: list[Visit] = []
    for process in range(processes):
        alone = process % len(files)  # each file is the first to be loaded somewhere
        entries = [file.model_copy(update={"alone": i == alone}) for i, file in enumerate(files)]
        for one in visit(target, space, [*entries, *references], wanted, process, seed):
            made.append(one)
            progress(len(made) / (processes * sum(wanted.values())), f"process {process + 1} of {processes}")
    times = [computed(one.samples_ms, one.waited_ms) for one in made]
    slow = slowdowns([one.entry for one in made], times, {reference.key for reference in references})
    return [_timed(file.key, made, slow, device) for file in files]


def _timed(key: str, visits: Sequence[Visit], slow: np.ndarray, device: Device) -> TimedFile:
    own = [v for v, one in enumerate(visits) if one.entry == key]
    made = [visits[v] for v in own]
    samples = [np.asarray(one.samples_ms) for one in made]
    process = np.array([one.worker for one in made])
    quiet, taken_out = _undisturbed([computed(one.samples_ms, one.waited_ms) for one in made], slow[own], process)
    within = device.effort.max_relative_error
    timing = Timing(
        clock=_clock(samples, process, warmups(device.effort.warmup_runs, len(samples[0]))),
        undisturbed=quiet,
        loading=_typical([one.loading for one in made if one.loading]),
        stable=quiet.relative_error <= within,
        stable_within=within,
    )
    measurement = Measurement(
        name=key,
        latency_ms=quiet.latency_ms,
        relative_error=quiet.relative_error,
        stable=timing.stable,
        samples_ms=[one.samples_ms for one in made],
        waited_ms=[one.waited_ms for one in made] if any(one.waited_ms for one in made) else [],
        slowdown=[round(float(factor), 4) for factor in taken_out],
    )
    return TimedFile(measurement, timing, tuple(int(p) for p in process))


def _undisturbed(own: list[np.ndarray], slow: np.ndarray, process: np.ndarray) -> tuple[Undisturbed, np.ndarray]:
    """And what was divided by for it, visit by visit."""
    fastest, fastest_interval = _with_interval(own, process, lambda all_: float(np.quantile(all_, UNDISTURBED)))
    settled = [samples / factor for samples, factor in zip(own, slow, strict=True)]
    median, median_interval = _with_interval(settled, process, lambda all_: float(np.median(all_)))
    # nothing is faster undisturbed than the median without its slowdown, nor slower than the fastest that were seen
    interval = (min(median_interval[0], fastest_interval[0]), fastest_interval[1])
    if median_interval[1] < fastest_interval[0]:
        return Undisturbed(latency_ms=median, interval_ms=interval, how="references"), slow
    return Undisturbed(latency_ms=fastest, interval_ms=interval, how="own"), np.ones(len(slow))


def _clock(samples: list[np.ndarray], process: np.ndarray, before_each: int) -> Clock:
    everything = np.concatenate(samples)
    p10, p50, p90, p99 = (float(q) for q in np.percentile(everything, (10, 50, 90, 99)))
    _, interval = _with_interval(samples, process, lambda all_: float(np.median(all_)))
    return Clock(
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        mean_ms=float(everything.mean()),
        p50_interval_ms=interval,
        spread=(p90 - p10) / p50,
        inferences=len(everything),
        processes=len(set(process.tolist())),
        warmups=before_each,
    )


def _with_interval(
    visits: list[np.ndarray], process: np.ndarray, statistic: Callable[[np.ndarray], float]
) -> tuple[float, Interval]:
    """A statistic of all samples, and its 95 % interval: whole processes are drawn again."""
    value = statistic(np.concatenate(visits))
    groups = [np.concatenate([visits[v] for v in np.flatnonzero(process == p)]) for p in np.unique(process)]
    if len(groups) < 2:
        return value, (0.0, float("inf"))
    drawn = [
        statistic(np.concatenate([groups[g] for g in np.repeat(np.arange(len(groups)), d)])) for d in draws(len(groups))
    ]
    width = half_width(np.asarray(drawn), len(groups))
    return value, (max(0.0, value - width), value + width)


def _typical(loadings: Sequence[Loading]) -> Loading | None:
    """The median of each figure over the processes that loaded the file first."""
    if not loadings:
        return None
    told = {name: [getattr(one, name) for one in loadings] for name in Loading.model_fields}
    found = {name: float(np.median(values)) for name, values in told.items() if None not in values}
    whole = {name: int(value) for name, value in found.items() if name.endswith("_bytes")}
    return Loading.model_validate({**found, **whole})
