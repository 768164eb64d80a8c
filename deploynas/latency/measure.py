"""Has worker processes run on the target and collects what they report: the one way anything of ours is timed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from deploynas.device import Device
from deploynas.graph import DEFAULT_FORMS, OperatorForms
from deploynas.latency.alignment import FEWEST, align
from deploynas.latency.entries import REFERENCE_SPACE, network_entry, reference_entries
from deploynas.latency.entry import Entry
from deploynas.latency.speed import slowdowns
from deploynas.latency.statistic import relative_error, summarise
from deploynas.latency.table import Measurement, computed
from deploynas.latency.target import Target, target_of
from deploynas.latency.worker import Plan, Visit
from deploynas.progress import OnProgress, Progress, silent
from deploynas.space import Architecture, Space

FEW_VISITS = 80  # of one process to all networks together, at least
REFERENCE_VISITS = 80  # of one process to each reference, at least: some seconds, in which there is a quiet moment


def visit(
    target: Target, space: Space, entries: Sequence[Entry], visits: Mapping[str, int], worker: int, seed: int
) -> Iterator[Visit]:
    """One worker process: it loads all entries that still need visits, and reports each visit as it is made."""
    wanted = [entry for entry in entries if visits[entry.key]]
    if not wanted:
        return
    plan = Plan(
        device=target.device.describe(),
        space=space.describe(),
        entries=wanted,
        visits={entry.key: visits[entry.key] for entry in wanted},
        seed=seed * 1000 + worker,
        compare=worker == 0,
    )
    for made in target.visits(plan):
        yield made.model_copy(update={"worker": worker})


def measure_networks(
    device: Device,
    space: Space,
    architectures: Sequence[Architecture],
    *,
    forms: OperatorForms = DEFAULT_FORMS,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> list[Measurement]:
    """Time whole networks, interleaved, with the device's effort, or more of it if they are few; in the order given.

    `forms`: those of the device's table, in which the networks would be shipped.
    """
    visits = max(device.effort.visits, FEW_VISITS // max(1, len(architectures)))
    device = device.model_copy(update={"effort": device.effort.model_copy(update={"visits": visits})})
    entries = [network_entry(f"network/{i}", a, forms) for i, a in enumerate(architectures)]
    return measure_entries(device, entries, space=space, seed=seed, on_progress=on_progress)


def measure_entries(
    device: Device,
    entries: Sequence[Entry],
    *,
    space: Space | None = None,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> list[Measurement]:
    """Time entries, interleaved with references, in as many fresh processes and visits as the device's effort says.

    The references come from the space, or from one of ours for entries that are files. They are visited often, so that
    some visits fall into undisturbed moments.
    """
    space = space or Space.load(REFERENCE_SPACE)
    references = reference_entries(space)
    together = [*entries, *references]
    progress = Progress(on_progress)
    target, effort = target_of(device, progress.waiting), device.effort
    made: list[Visit] = []
    wanted = {entry.key: effort.visits for entry in entries} | {
        reference.key: max(effort.visits, REFERENCE_VISITS) for reference in references
    }
    total = effort.workers * sum(wanted.values())
    for worker in range(effort.workers):
        for one in visit(target, space, together, wanted, worker, seed):
            made.append(one)
            progress(len(made) / total, f"process {worker + 1} of {effort.workers}")
    networks = [entry.key for entry in entries if entry.kind == "network"]
    found = measurements(made, device, {reference.key for reference in references}, [networks])
    return [found[entry.key] for entry in entries]


def measurements(
    visits: Sequence[Visit], device: Device, references: Collection[str], alike: Sequence[Collection[str]] = ()
) -> dict[str, Measurement]:
    """What visits, in the order they were made, say about each entry.

    `references` tell how slow the machine was. Entries that are `alike`, such as the networks of a space, suffer alike.
    """
    slow = np.ones(len(visits))
    if device.undisturbed:
        times = [computed(one.samples_ms, one.waited_ms) for one in visits]
        slow = slowdowns([one.entry for one in visits], times, references)
    grouped: dict[str, list[int]] = {}
    for v, one in enumerate(visits):
        grouped.setdefault(one.entry, []).append(v)
    found = {name: _measurement(name, [visits[v] for v in made], slow[made], device) for name, made in grouped.items()}
    if device.undisturbed:
        for kind in alike:
            found |= _aligned([found[name] for name in kind if name in found], device)
    return found


def _measurement(name: str, visits: Sequence[Visit], slow: np.ndarray, device: Device) -> Measurement:
    """What an entry's own visits say."""
    taken_out = device.undisturbed and any(one.waited_ms for one in visits)
    waited = [one.waited_ms for one in visits] if taken_out else []
    samples = [one.samples_ms for one in visits]
    settled = [
        computed(took, own) / factor
        for took, own, factor in zip(samples, waited or [[]] * len(visits), slow, strict=True)
    ]
    error = relative_error(settled, device.statistic)
    return Measurement(
        name=name,
        latency_ms=summarise(np.concatenate(settled), device.statistic),
        relative_error=error,
        stable=error <= device.effort.max_relative_error,
        samples_ms=samples,
        waited_ms=waited,
        slowdown=[round(float(factor), 4) for factor in slow],
    )


def _aligned(alone: Sequence[Measurement], device: Device) -> dict[str, Measurement]:
    """The same entries, placed relative to each other by the shape they share; at the same level in the median."""
    if len(alone) < FEWEST:
        return {}
    entry = np.repeat(np.arange(len(alone)), [len(one.samples_ms) for one in alone])
    log_ms = [np.log(samples) for one in alone for samples in one.computed_ms()]
    location, errors = align(entry, log_ms, np.concatenate([one.slowdown for one in alone]))
    location += np.median(np.log([one.latency_ms for one in alone]) - location)
    return {
        one.name: one.model_copy(
            update={
                "latency_ms": float(np.exp(place)),
                "relative_error": float(error),
                "stable": bool(error <= device.effort.max_relative_error),
            }
        )
        for one, place, error in zip(alone, location, errors, strict=True)
    }
