"""Which parts of a network run in 8 bits on a device: what each loses and gains is measured, the choice is solved for.

The loss of an assignment is the sum of its parts' divergences from fp32, its time a sum of gains and conversions; so
every assignment that no other beats is found exactly (`search/chain_frontier.py`). Sums are a hypothesis: assignments
of the frontier are measured whole, time and accuracy, and the choice is made by what was measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from deploynas.device import Device
from deploynas.export.integer_file import IntegerSource
from deploynas.export.sensitivity import Sensitivity, drop_per_divergence
from deploynas.export.verification import ImageStream, at_most, judged
from deploynas.latency.entry import Entry
from deploynas.latency.measure import measure_entries
from deploynas.latency.precision_costs import Assignment, PrecisionCosts, assignments_to_time, fit_costs
from deploynas.progress import OnProgress, silent
from deploynas.report.mixed_precision import AssignmentPoint, MixedPrecisionRecord, PartPrecision
from deploynas.search.chain_frontier import ChainLink, ChainPoint, chain_frontier

SENSITIVITY_IMAGES = 1000
MEASURED = 10  # assignments of the frontier
FEW_VISITS = 400  # to all assignments together by each process, at least


@dataclass(frozen=True)
class MixedGoal:
    """The least loss within a budget; without one, the fastest that loses no more than allowed."""

    max_accuracy_drop: float
    budget_ms: float | None = None

    def words(self) -> str:
        if self.budget_ms is not None:
            return f"the least loss within {self.budget_ms:g} ms"
        return f"the fastest that loses at most {100 * self.max_accuracy_drop:g} points"


@dataclass(frozen=True)
class MixedChoice:
    in_float: tuple[str, ...]  # parts
    record: MixedPrecisionRecord


@dataclass(frozen=True)
class Assigned:
    """An assignment: what is predicted of it, and, for some, what was measured."""

    in_8_bits: Assignment
    predicted_ms: float
    predicted_drop: float
    measured_ms: float | None = None
    seen: Sensitivity | None = None  # on the validation images
    chosen: bool = False

    @property
    def ms(self) -> float:
        return self.predicted_ms if self.measured_ms is None else self.measured_ms

    def record(self, names: Sequence[str]) -> AssignmentPoint:
        return AssignmentPoint(
            in_8_bits=[name for name, integer in zip(names, self.in_8_bits, strict=True) if integer],
            predicted_ms=self.predicted_ms,
            predicted_drop=self.predicted_drop,
            measured_ms=self.measured_ms,
            measured_drop=self.seen.drop.drop if self.seen else None,
            measured_drop_se=self.seen.drop.se if self.seen else None,
            chosen=self.chosen,
        )


@dataclass(frozen=True)
class PartsLearned:
    """What is known of each part, from measurements."""

    alone: list[Sensitivity]  # of each part in 8 bits alone
    drop_per_nat: float  # of accuracy
    timed: dict[Assignment, float]  # in milliseconds
    costs: PrecisionCosts

    def links(self) -> list[ChainLink]:
        """Option 0 of each part is float, option 1 is 8 bits; costs are differences from fp32."""
        borders = self.costs.entering_ms, self.costs.leaving_ms
        enter, leave = (np.concatenate([[0.0], border]).tolist() for border in borders)
        return [
            ChainLink((0.0, -gain), (0.0, seen.divergence), ((0.0, enter[i]), (leave[i], 0.0))[: 1 if i == 0 else 2])
            for i, (gain, seen) in enumerate(zip(self.costs.gain_ms.tolist(), self.alone, strict=True))
        ]

    def point(self, found: ChainPoint) -> Assigned:
        in_8_bits = tuple(option == 1 for option in found.options)
        return Assigned(in_8_bits, self.costs.base_ms + found.cost, self.drop_per_nat * found.loss + 0.0)  # not -0


@dataclass(frozen=True)
class MixedSearch:
    """A network's 8-bit source, and the images that assignments are judged on."""

    source: IntegerSource
    device: Device
    calibration: ImageStream
    validation: ImageStream
    fp32: bytes
    goal: MixedGoal

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.source.network.parts]

    def choose(self, on_progress: OnProgress = silent) -> MixedChoice:
        known = self.learn(lambda share, what: on_progress(0.8 * share, what))
        frontier = [known.point(found) for found in chain_frontier(known.links())][::-1]
        points = self._measured(frontier, lambda share, what: on_progress(0.8 + 0.2 * share, what))
        chosen = self._chosen(points)
        record = MixedPrecisionRecord(
            parts=self._parts(known, chosen),
            frontier=[replace(point, chosen=point is chosen).record(self.names) for point in points],
            assignments_timed=len(known.timed),
            noise_ms=known.costs.noise_ms,
            calibration_images=known.alone[0].drop.images,
            drop_per_divergence=known.drop_per_nat,
            goal=self.goal.words(),
        )
        return MixedChoice(self.in_float(chosen.in_8_bits), record)

    def learn(self, on_progress: OnProgress = silent) -> PartsLearned:
        """What each part loses and gains."""
        seen = self._sensitivities(lambda share, what: on_progress(share / 2, what))
        timed = assignments_to_time(len(self.names))
        ms = self.time(timed, lambda share, what: on_progress(0.5 + share / 2, what))
        costs = fit_costs(timed, ms, [p.in_channels * p.height * p.width for _, p in self.source.network.parts])
        return PartsLearned(seen[:-1], drop_per_divergence(seen), dict(zip(timed, ms, strict=True)), costs)

    def in_float(self, in_8_bits: Sequence[bool]) -> tuple[str, ...]:
        return tuple(name for name, integer in zip(self.names, in_8_bits, strict=True) if not integer)

    def _sensitivities(self, on_progress: OnProgress) -> list[Sensitivity]:
        """Of each part alone, then of all together."""
        images = at_most(self.calibration, SENSITIVITY_IMAGES)
        exact, n = judged(self.fp32, images), len(self.names)
        found = []
        for i in range(n + 1):
            chosen = [i in (one, n) for one in range(n)]
            other = self.source.judged(self.source.content(self.in_float(chosen)), images)
            found.append(Sensitivity.between(exact, other))
            on_progress((i + 1) / (n + 1), f"rounding part {min(i + 1, n)} of {n}")
        return found

    def time(self, assignments: Sequence[Assignment], on_progress: OnProgress = silent) -> list[float]:
        """Interleaved; those without 8 bits are the fp32 file itself."""
        device = self.device
        visits = max(device.effort.visits, -(-FEW_VISITS // len(assignments)))
        device = device.model_copy(update={"effort": device.effort.model_copy(update={"visits": visits})})
        with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
            entries = []
            for i, assignment in enumerate(assignments):
                path = Path(folder) / f"{i}.onnx"
                path.write_bytes(self.source.content(self.in_float(assignment)) if any(assignment) else self.fp32)
                entries.append(Entry(key=f"file/{i}", kind="file", path=str(path)))
            return [one.latency_ms for one in measure_entries(device, entries, on_progress=on_progress)]

    def _measured(self, frontier: Sequence[Assigned], on_progress: OnProgress) -> list[Assigned]:
        """Some of the frontier, fp32 and 8 bits everywhere among them, with what they take and lose."""
        few = set(np.linspace(0, len(frontier) - 1, MEASURED).round().astype(int).tolist())
        around = self._predicted(frontier)
        few |= {around - 1, around, around + 1} & set(range(len(frontier)))
        ms = self.time([frontier[i].in_8_bits for i in sorted(few)], on_progress)
        exact = judged(self.fp32, self.validation)
        measured = list(frontier)
        for i, latency_ms in zip(sorted(few), ms, strict=True):
            content = self.source.content(self.in_float(frontier[i].in_8_bits)) if any(frontier[i].in_8_bits) else None
            other = self.source.judged(content, self.validation) if content else exact
            seen = Sensitivity.between(exact, other)
            measured[i] = replace(frontier[i], measured_ms=latency_ms, seen=seen)
        return measured

    def _predicted(self, frontier: Sequence[Assigned]) -> int:
        """Where the goal is met by prediction; the slowest loses least."""
        goal = self.goal
        if goal.budget_ms is None:
            return max(i for i, point in enumerate(frontier) if not i or point.predicted_drop <= goal.max_accuracy_drop)
        within = (i for i, point in enumerate(frontier) if point.predicted_ms <= goal.budget_ms)
        return next(within, len(frontier) - 1)

    def _chosen(self, points: Sequence[Assigned]) -> Assigned:
        """By what was measured; fp32 where nothing else will do."""
        known, goal = [point for point in points if point.seen is not None], self.goal
        kept = [point for point in known if point.seen and point.seen.drop.drop <= goal.max_accuracy_drop]
        if goal.budget_ms is None:
            return min(kept, key=lambda point: point.ms, default=points[0])
        within = [point for point in kept if point.ms <= goal.budget_ms]
        # the least loss by prediction, which rests on more than the few images that change class
        return min(within, key=lambda point: point.predicted_drop, default=min(kept, key=lambda point: point.ms))

    def _parts(self, known: PartsLearned, chosen: Assigned) -> list[PartPrecision]:
        parts, fp32_ms = self.source.network.parts, known.timed[(False,) * len(self.names)]
        alone_ms = {one.index(True): took for one, took in known.timed.items() if sum(one) == 1}
        return [
            PartPrecision(
                name=name,
                text=part.words(),
                in_8_bits=chosen.in_8_bits[i],
                accuracy_drop=known.alone[i].drop.drop,
                accuracy_drop_se=known.alone[i].drop.se,
                divergence=known.alone[i].divergence,
                divergence_se=known.alone[i].divergence_se,
                gain_ms=float(known.costs.gain_ms[i]),
                gain_alone_ms=fp32_ms - alone_ms[i],
            )
            for i, (name, part) in enumerate(parts)
        ]
