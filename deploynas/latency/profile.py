"""Builds the latency table of a space on a device: forms, isolated parts, correction, validation on whole networks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deploynas.blocks import Part
from deploynas.device import Device
from deploynas.files import now
from deploynas.graph import OperatorForms
from deploynas.latency.correction import IsolatedTable, fit, spread_out, wholly_built
from deploynas.latency.entries import network_entry, part_entries
from deploynas.latency.entry import Entry
from deploynas.latency.facts import Facts
from deploynas.latency.form_choice import FormChoice
from deploynas.latency.form_trials import choose, trial_entries
from deploynas.latency.journal import Journal
from deploynas.latency.loading_groups import Room, loading_groups
from deploynas.latency.measure import measurements, visit
from deploynas.latency.table import (
    Correction,
    Evidence,
    LatencyTable,
    Measurement,
    NetworkMeasurement,
    Validation,
)
from deploynas.latency.target import Target, target_of
from deploynas.latency.worker import Visit
from deploynas.progress import OnProgress, Progress, silent
from deploynas.space import Architecture, Space

DRAWS = 1000  # for each validation network, until there are as many as are wanted
PLANNED_SHARE = 0.8  # of the progress bar; the rest belongs to repeats


def profile(
    device: Device,
    space: Space,
    *,
    journal: str | Path | None = None,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> LatencyTable:
    """Measure every block configuration of the space on the device, and test the table on whole networks.

    With `journal` (a path), work survives a crash: the same call goes on where it stopped.
    """
    on_progress = Progress(on_progress)
    target = target_of(device, on_progress.waiting)
    work = _Work.plan(target, target.facts(), space, seed)
    path = Path(journal) if journal else None
    if path is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
            return _measure(work, Path(folder) / "journal.jsonl", on_progress)
    return _measure(work, path, on_progress)


@dataclass(frozen=True)
class _Work:
    """Everything that will be measured, decided before anything is."""

    target: Target
    facts: Facts  # of the target, before
    space: Space
    seed: int
    trials: list[Entry]  # networks that the forms of operators are chosen by
    parts: list[Entry]
    correction: list[Entry]  # networks that the table is corrected by
    validation: list[Entry]

    @classmethod
    def plan(cls, target: Target, facts: Facts, space: Space, seed: int) -> _Work:
        rng = np.random.default_rng(seed)
        effort = target.device.effort
        correction = spread_out(space, effort.correction_networks, rng)
        taken = set(correction)
        validation: list[Architecture] = []
        limit = min(effort.validation_networks, space.size() - len(taken))
        draws = itertools.count()
        while len(validation) < limit and next(draws) < DRAWS * limit:  # a small space may have no more
            candidate = space.sample(rng)
            if candidate not in taken and wholly_built(candidate):
                taken.add(candidate)
                validation.append(candidate)
        return cls(
            target,
            facts,
            space,
            seed,
            trial_entries(space, target.device.precision, seed, target.device.quantized),
            list(part_entries(space).values()),
            [network_entry(f"correction/{i}", a) for i, a in enumerate(correction)],
            [network_entry(f"validation/{i}", a) for i, a in enumerate(validation)],
        )

    @property
    def device(self) -> Device:
        return self.target.device

    @property
    def entries(self) -> list[Entry]:
        """What the table is made of."""
        return [*self.parts, *self.correction, *self.validation]

    def written_in(self, forms: OperatorForms) -> _Work:
        """The same work, with everything that the table is made of in these forms."""

        def written(entries: list[Entry]) -> list[Entry]:
            return [entry.model_copy(update={"forms": forms}) for entry in entries]

        return replace(
            self,
            parts=written(self.parts),
            correction=written(self.correction),
            validation=written(self.validation),
        )

    def visits(self, entry: Entry) -> int:
        """How often one worker visits an entry."""
        effort = self.device.effort
        if entry.moment:
            return 3 * effort.visits // 2  # short ones: inferences of one visit mostly repeat each other
        return effort.visits if entry.kind == "network" else effort.part_visits

    def planned(self) -> int:
        """Visits of all workers, repeats aside."""
        return self.device.effort.workers * sum(map(self.visits, [*self.trials, *self.entries]))

    def measurements(self, visits: Sequence[Visit]) -> dict[str, Measurement]:
        parts = {part.key for part in self.parts}
        networks = {network.key for network in [*self.correction, *self.validation]}
        own = [one for one in visits if one.entry in parts | networks]
        return measurements(own, self.device, parts, [parts, networks])

    def choice(self, visits: Sequence[Visit]) -> FormChoice:
        tried = {entry.key for entry in self.trials}
        return choose(self.trials, [one for one in visits if one.entry in tried])

    def header(self) -> dict[str, Any]:
        """What must be the same for two runs to share a journal."""
        return {
            "schema": "deploynas/profile-journal",
            "schema_version": 1,
            "space_hash": self.space.hash,
            "device_hash": self.device.hash,
            "effort": self.device.effort.model_dump(exclude={"time_limit_s", "max_relative_error"}),
            "hardware": self.facts.hardware.fingerprint,
            "versions": self.facts.versions,
            "seed": self.seed,
            "trials": [entry.key for entry in self.trials],
        }


def _measure(work: _Work, path: Path, on_progress: OnProgress) -> LatencyTable:
    started, date = time.monotonic(), now()
    journal = Journal(path, work.header())
    try:
        _planned_visits(work, work.trials, journal, on_progress)
        work = work.written_in(work.choice(journal.visits).chosen)
        _planned_visits(work, work.entries, journal, on_progress)
        _settle(work, journal, started, on_progress)
    finally:
        journal.close()
    return _assemble(
        work,
        journal,
        provenance={
            "date": date,
            "duration_s": round(time.monotonic() - started, 1),
            "resumed": journal.resumed,
            **work.facts.provenance_until(work.target.facts()),
            **work.facts.told(work.device),
            "elsewhere": work.device.host is not None,
            "seed": work.seed,
        },
    )


def _planned_visits(work: _Work, entries: list[Entry], journal: Journal, on_progress: OnProgress) -> None:
    effort, total, done = work.device.effort, work.planned(), len(journal.visits)
    for worker in range(effort.workers):
        made = journal.counts(worker)
        for group in _groups(work, entries, worker):
            missing = {e.key: max(0, work.visits(e) - made[e.key]) for e in group}
            for _ in _visit(work, journal, group, missing, worker):
                done += 1
                on_progress(PLANNED_SHARE * min(1.0, done / total), f"process {worker + 1} of {effort.workers}")


def _settle(work: _Work, journal: Journal, started: float, on_progress: OnProgress) -> None:
    """Measure unstable entries again, in fresh processes, until they settle or the time is up."""
    device = work.device
    limit, begun = device.effort.time_limit_s, time.monotonic() - started
    worker = 1 + max(visit.worker for visit in journal.visits)
    while True:
        measured = work.measurements(journal.visits)
        unstable = [e for e in work.entries if not measured[e.key].stable]
        if not unstable or time.monotonic() - started > limit:
            return
        missing = {entry.key: work.visits(entry) for entry in unstable}
        for _ in _visit(work, journal, unstable, missing, worker):
            elapsed = time.monotonic() - started
            if elapsed > limit:
                return
            share = (elapsed - begun) / (limit - begun)
            on_progress(
                PLANNED_SHARE + (1 - PLANNED_SHARE) * share,
                f"{len(unstable)} unstable entries again, {limit - elapsed:.0f} s at most",
            )
        worker += 1


def _visit(
    work: _Work, journal: Journal, entries: list[Entry], missing: dict[str, int], worker: int
) -> Iterator[Visit]:
    for made in visit(work.target, work.space, entries, missing, worker, work.seed):
        journal.add(made)
        yield made


def _groups(work: _Work, entries: list[Entry], worker: int) -> list[list[Entry]]:
    room = Room(work.facts.free_memory_bytes, work.facts.accelerator_free_bytes)
    return loading_groups(entries, work.space, work.device, room, np.random.default_rng((work.seed, worker)))


def _assemble(work: _Work, journal: Journal, provenance: dict[str, Any]) -> LatencyTable:
    device, space = work.device, work.space
    measured = work.measurements(journal.visits)
    isolated = _isolated_tables(space, {k: m.latency_ms for k, m in measured.items()})
    networks = [space.architecture(e.choices or []) for e in work.correction]
    correction = fit(isolated, networks, [measured[e.key].latency_ms for e in work.correction])
    corrected = [LatencyTable.from_arrays(own.space, *correction.apply(own)) for own in isolated]
    table = LatencyTable.joined(space, corrected)

    def compared(entries: list[Entry]) -> list[NetworkMeasurement]:
        return [
            NetworkMeasurement(
                **measured[e.key].model_dump(),
                choices=e.choices or [],
                predicted_ms=table.predict(space.architecture(e.choices or [])),
            )
            for e in entries
        ]

    evidence = Evidence(
        device=device,
        device_hash=device.hash,
        parts=[measured[e.key] for e in work.parts],
        correction=Correction(
            method=correction.method,
            coefficients=correction.coefficients,
            held_out_error=correction.held_out_error,
            networks=compared(work.correction),
        ),
        validation=Validation.of(compared(work.validation)),
        provenance=provenance,
        forms=work.choice(journal.visits),
    )
    return replace(table, evidence=evidence)


def _isolated_tables(space: Space, latency_ms: dict[str, float]) -> list[IsolatedTable]:
    """One for every input size."""
    entries = part_entries(space)

    def measured_ms(part: Part) -> float:
        return latency_ms[entries[part].key]

    tables = []
    for at_size in space.each_size():
        fixed = sum(measured_ms(part) for _, part in at_size.fixed_parts())
        blocks = tuple(
            tuple(
                tuple(sum(map(measured_ms, at_size.option_parts(g, i, o))) for o in range(len(choice.options)))
                for i, choice in enumerate(group.choices)
            )
            for g, group in enumerate(at_size.built_groups)
        )
        tables.append(IsolatedTable(at_size, fixed, blocks))
    return tables
