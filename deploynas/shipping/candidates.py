"""Networks that may be shipped: the given one first, then what the solver finds when that is too slow.

A latency does not depend on the weights. So a network that the solver proposes is measured whole before it is
fine-tuned, when a miss costs seconds; the exported file is measured again, and that is what the promise is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploynas import search
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.device import Device
from deploynas.errors import GateError
from deploynas.export.budget import Attempt, within_budget
from deploynas.files import content_hash
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import Measurement
from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Limit
from deploynas.search.result import SearchResult
from deploynas.shipping.sources import KnownTable, Sources, remember
from deploynas.space import Architecture, Space
from deploynas.training.finetune import finetune
from deploynas.training.recipe import PRESETS, Recipe

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
    solver: str = "exact"
    on_progress: OnProgress = silent
    probes: list[Attempt[SearchResult]] = field(default_factory=list)

    def next(self, target_ms: float) -> Path:
        """A fine-tuned network that the table expects within the target."""
        if self.given is not None:
            path, self.given = self.given, None
            return path
        return self.fine_tune(self.solve(target_ms).architecture)

    def solve(self, target_ms: float) -> SearchResult:
        """The most accurate network that measures within the target, weights aside."""
        if self.table is None or self.sources.estimator is None or self.sources.supernet is None:
            missing = [
                name
                for name, found in (
                    ("a latency table of this device", self.table),
                    ("the estimator", self.sources.estimator),
                    ("the supernet", self.sources.supernet),
                )
                if found is None
            ]
            raise GateError(
                f"another network cannot be looked for: {', '.join(missing)} is not known",
                hint="`--latency TABLE` and `--search RESULT.json` name them",
            )
        budget = target_ms * (1 - PROBE_MARGIN)
        attempts = within_budget(budget, lambda target: self._probe(target, budget), PROBES)
        self.probes += attempts
        return attempts[-1].what

    def _probe(self, target_ms: float, budget_ms: float) -> Attempt[SearchResult]:
        assert self.table is not None and self.sources.estimator is not None
        estimator = load_estimator(self.sources.estimator)
        limits = [Limit(self.table.table, target_ms), *self.sources.resources]
        result = search(self.space, estimator, limits, self.solver)
        return Attempt(target_ms, result.latency_ms, self._latency(result.architecture, budget_ms), result)

    def _latency(self, architecture: Architecture, budget_ms: float) -> float:
        """Measured again if it seems too slow, since a burst of others' work must not cost accuracy; the less disturbed
        measurement counts. What is promised is measured later, on the exported file.
        """
        made: list[Measurement] = []
        while len(made) < 2:
            made += measure_networks(
                self.device, self.space, [architecture], seed=len(made), on_progress=self.on_progress
            )
            if made[-1].latency_ms <= budget_ms:
                break
        return min(made, key=lambda one: one.disturbance).latency_ms


def inheriting(
    sources: Sources, data: str, folder: Path, settings: dict[str, Any], on_progress: OnProgress = silent
) -> FineTune:
    """Fine-tunes whatever it is given as an earlier network was, whose recipe were `settings`."""

    def fine_tune(architecture: Architecture) -> Path:
        assert sources.supernet is not None
        preset = architecture.space.name if architecture.space.name in PRESETS else PRESETS[0]
        recipe = Recipe.model_validate({**Recipe.load(preset).model_dump(by_alias=True), **settings})
        return finetune(
            sources.supernet,
            architecture,
            data,
            folder / content_hash([architecture.choices, settings, sources.teacher]),
            recipe,
            teacher=sources.teacher,
            lineage=remember(sources.search, sources.supernet, sources.teacher),
            on_progress=on_progress,
        ).path

    return fine_tune
