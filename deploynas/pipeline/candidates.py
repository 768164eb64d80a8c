"""Networks that may be shipped: the given one first, then what the solver finds when that is too slow.

A latency does not depend on the weights. So a network that the solver proposes is measured whole before it is
fine-tuned, when a miss costs seconds; the exported file is measured again, and that is what the promise is about.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from deploynas import search
from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.device import Device
from deploynas.errors import GateError
from deploynas.export.budget import Attempt, within_budget
from deploynas.graph import DEFAULT_FORMS, OperatorForms
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import Measurement
from deploynas.outcome import BudgetKind
from deploynas.pipeline.limits import device_limits, tightest
from deploynas.pipeline.sources import KnownTable, Sources
from deploynas.progress import OnProgress, silent
from deploynas.report.document import Round
from deploynas.search.problem import Limit
from deploynas.search.result import SearchResult
from deploynas.space import Architecture, Space

PROBES = 5
PROBE_MARGIN = 0.01  # two measurements of one network differ by about this much

# fine-tunes an architecture, in a folder of its own, and returns the path of the network
FineTune = Callable[[Architecture], Path]


@dataclass
class Candidates:
    """A source of networks for one device and one budget."""

    device: Device
    space: Space
    sources: Sources
    table: KnownTable | None
    fine_tune: FineTune
    given: Path | None = None  # a fine-tuned network to begin with
    untrained: bool = False  # networks that stand in need no weights to inherit
    solver: str = "exact"
    on_progress: OnProgress = silent
    probes: list[Round] = field(default_factory=list)  # networks that were measured without weights of their own

    @cached_property
    def estimator(self) -> StoredEstimator | None:
        return load_estimator(self.sources.estimator) if self.sources.estimator else None

    @property
    def forms(self) -> OperatorForms:
        """That networks are timed and shipped in: those of the table. Without one nothing was measured: the default."""
        return self.table.table.forms if self.table else DEFAULT_FORMS

    def next(self, target_ms: float) -> Path:
        """A fine-tuned network that the table expects within the target."""
        if self.given is not None:
            path, self.given = self.given, None
            return path
        return self.fine_tune(self.solve(target_ms).architecture)

    def solve(self, target_ms: float, most_ms: float = math.inf) -> SearchResult:
        """The most accurate network that measures within the target, weights aside; predicted at `most_ms` at most."""
        table, estimator = self._require_sources()
        budget = target_ms * (1 - PROBE_MARGIN)

        def probe(tightened_ms: float) -> Attempt[SearchResult]:
            asked_ms = min(tightened_ms, most_ms)
            limits = [Limit(table.table, asked_ms), *tightest([*self.sources.resources, *device_limits(self.device)])]
            result = search(self.space, estimator, limits, self.solver)
            return Attempt(asked_ms, result.latency_ms, self._latency(result.architecture, budget), result)

        attempts = within_budget(budget, probe, PROBES)
        self.probes += [round_of(attempt, attempt.what.architecture, exported=False) for attempt in attempts]
        return attempts[-1].what

    def _require_sources(self) -> tuple[KnownTable, StoredEstimator]:
        table, estimator = self.table, self.estimator
        supernet = self.sources.supernet
        if table is None or estimator is None or (supernet is None and not self.untrained):
            needed = {
                "a latency table of this device": table,
                "the estimator": estimator,
                **({} if self.untrained else {"the supernet": supernet}),
            }
            missing = [name for name, found in needed.items() if found is None]
            raise GateError(
                f"another network cannot be looked for: not known, or changed since: {', '.join(missing)}",
                hint="`--latency TABLE`, `--search RESULT.json` and `--supernet RUN` name them",
            )
        return table, estimator

    def _latency(self, architecture: Architecture, budget_ms: float) -> float:
        """Measured again if it seems too slow, since a burst of others' work must not cost accuracy; the less disturbed
        measurement counts. What is promised is measured later, on the exported file.
        """
        made: list[Measurement] = []
        while len(made) < 2:
            made += measure_networks(
                self.device,
                self.space,
                [architecture],
                forms=self.forms,
                seed=len(made),
                on_progress=self.on_progress,
            )
            if latency_about(made[-1], self.device.budget) <= budget_ms:
                break
        return latency_about(min(made, key=lambda one: one.disturbance), self.device.budget)


def latency_about(measured: Measurement, kind: BudgetKind) -> float:
    """The latency that a budget of this kind is about."""
    if kind == "undisturbed":
        return measured.latency_ms
    return float(np.percentile(np.concatenate(measured.samples_ms), int(kind[1:])))


def round_of(attempt: Attempt, architecture: Architecture, *, exported: bool) -> Round:
    return Round(
        target_ms=attempt.target_ms,
        predicted_ms=attempt.predicted_ms,
        measured_ms=attempt.measured_ms,
        architecture=str(architecture),
        exported=exported,
    )
