"""Runs worker processes and collects what they report: the one way anything of ours is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.statistic import relative_error, summarise
from deploynas.latency.table import Measurement
from deploynas.latency.worker import Entry, Plan, Visit
from deploynas.progress import OnProgress, silent
from deploynas.space import Architecture, Space


def visit(
    device: Device, space: Space | None, entries: Sequence[Entry], visits: Mapping[str, int], worker: int, seed: int
) -> Iterator[Visit]:
    """One worker process: it loads all entries that still need visits, and reports each visit as it is made."""
    wanted = [entry for entry in entries if visits[entry.key]]
    if not wanted:
        return
    plan = Plan(
        device=device.describe(),
        space=space.describe() if space else None,
        entries=wanted,
        visits={entry.key: visits[entry.key] for entry in wanted},
        seed=seed * 1000 + worker,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "deploynas.latency.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; we end the worker
    )
    assert process.stdin and process.stdout
    try:
        process.stdin.write(plan.model_dump_json())
        process.stdin.close()
        for line in process.stdout:  # blocks, so nothing of ours runs beside what is being measured
            _raise_reported(line)
            yield Visit.model_validate({**json.loads(line), "worker": worker})
        if process.wait() != 0:
            raise DeployNASError(
                f"the measuring process ended with code {process.returncode}",
                hint="out of memory? the same command goes on where it stopped",
            )
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def measure_networks(
    device: Device,
    space: Space,
    architectures: Sequence[Architecture],
    *,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> list[Measurement]:
    """Time whole networks, interleaved, with the device's effort; in the order given."""
    entries = [network_entry(f"network/{i}", a) for i, a in enumerate(architectures)]
    return measure_entries(device, space, entries, seed=seed, on_progress=on_progress)


def measure_entries(
    device: Device,
    space: Space | None,
    entries: Sequence[Entry],
    *,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> list[Measurement]:
    """Time entries, interleaved, in as many fresh processes and visits as the device's effort says."""
    effort = device.effort
    collected: dict[str, list[list[float]]] = {entry.key: [] for entry in entries}
    total, done = effort.workers * effort.visits * len(entries), 0
    for worker in range(effort.workers):
        wanted = {entry.key: effort.visits for entry in entries}
        for made in visit(device, space, entries, wanted, worker, seed):
            collected[made.entry].append(made.samples_ms)
            done += 1
            on_progress(done / total, f"process {worker + 1} of {effort.workers}")
    return [measurement(entry.key, collected[entry.key], device) for entry in entries]


def measurement(name: str, visits: list[list[float]], device: Device) -> Measurement:
    error = relative_error(visits, device.statistic)
    return Measurement(
        name=name,
        latency_ms=summarise(np.concatenate(visits), device.statistic),
        relative_error=error,
        stable=error <= device.effort.max_relative_error,
        samples_ms=visits,
    )


def network_entry(key: str, architecture: Architecture) -> Entry:
    return Entry(key=key, kind="network", choices=[list(stage) for stage in architecture.choices])


def _raise_reported(line: str) -> None:
    """A worker's own error, raised here as if it had happened here."""
    if line.startswith('{"error"'):
        report = json.loads(line)
        kind = InputError if report["code"] == InputError.exit_code else DeployNASError
        raise kind(report["error"], report["hint"])
