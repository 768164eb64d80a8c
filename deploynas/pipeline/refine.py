"""An estimator made right where a search goes: networks of its frontier are measured, and it is told of them.

The best by prediction are those whose predictions err upwards, so an estimator that is right on random networks
promises too much on the frontier. Each round measures a few networks of the current frontier that were not measured
before and compares them with what was expected: that is the error on new networks of the frontier. Then the estimator
is updated with all that were measured. Rounds end when the mean error cannot be told from zero, or when enough were
made. The first round tells nothing about the refined estimator, since it is measured before there is one: so there are
two at least.

Rounds depend on estimator, table and goal alone: what was measured before is only not measured again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import EstimatorValidation, StoredEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.refinement import MeasuredNetwork, refine
from deploynas.errors import InputError
from deploynas.pipeline.goal import AtMost, Goal, NearBest, Reaching
from deploynas.pipeline.search_request import SearchRequest
from deploynas.pipeline.tradeoff import Tradeoff
from deploynas.progress import OnProgress, silent
from deploynas.search.frontier import FrontierPoint
from deploynas.search.result_file import CheckedNetwork, RefinementRound
from deploynas.space import Architecture

FEWEST = 2  # rounds
NETWORKS = 8  # per round
NEAR = 1.25  # times faster or slower than the answer: where half of the networks are measured


class Measures(Protocol):
    def measure(
        self, architectures: Sequence[Architecture], on_progress: OnProgress = ...
    ) -> list[MeasuredNetwork]: ...


@dataclass(frozen=True)
class Refinement:
    estimator: StoredEstimator
    rounds: tuple[RefinementRound, ...]

    def in_words(self) -> str:
        return refinement_in_words(self.rounds)


def refinement_in_words(rounds: Sequence[RefinementRound]) -> str:
    last, networks = rounds[-1], sum(made.networks for made in rounds)
    held = ""
    if last.coverage is not None:
        held = f"; {round(last.coverage * last.networks)} of {last.networks} within their 90 % intervals"
    return (
        f"refined with {networks} networks of the frontier; on the last {last.networks}, before the estimator was told "
        f"of them, expected - measured: {100 * last.mean_error:+.2f} ± {100 * last.mean_error_se:.2f} points{held}"
    )


def can_refine(estimator: StoredEstimator) -> bool:
    return isinstance(estimator, (BilinearEstimator, IndexedEstimator))


def require_rounds(rounds: int) -> None:
    if rounds < FEWEST:
        raise InputError(f"a refinement has {FEWEST} rounds at least, since only the second checks it; got {rounds}")


def refine_where_it_searches(
    request: SearchRequest, networks: Measures, rounds: int, on_progress: OnProgress = silent
) -> Refinement:
    """The estimator of the request, refined on the frontier of its only table, and what was seen on the way."""
    goal = request.wanted
    if goal is None:
        raise InputError("an estimator is refined on the frontier of one table", hint="one `--latency TABLE`")
    require_rounds(rounds)
    current, measured, made = request.estimator, list[MeasuredNetwork](), list[RefinementRound]()
    for i in range(rounds):
        tradeoff = Tradeoff.build(replace(request, estimator=current))
        points = _spread(tradeoff, goal, {network.architecture for network in measured})
        if len(points) < 2:
            break  # the frontier has hardly a network left that was not measured

        def report(fraction: float, what: str, before: int = i) -> None:
            on_progress((before + fraction) / rounds, f"round {before + 1}, {what}")

        found = networks.measure([point.architecture for point in points], report)
        made.append(_compared(current, points, found))
        measured += found
        current = refine(request.estimator, measured)
        if len(made) >= FEWEST and made[-1].settled:
            break
    return Refinement(_with_what_was_seen(current, made[-1]) if made else current, tuple(made))


def refined_request(
    request: SearchRequest, networks: Measures, rounds: int, out: Path, on_progress: OnProgress = silent
) -> tuple[SearchRequest, Refinement]:
    """The same question to the refined estimator, which is written to `out`."""
    found = refine_where_it_searches(request, networks, rounds, on_progress)
    found.estimator.save(out)
    return replace(request, estimator=found.estimator, estimator_path=out), found


def _spread(tradeoff: Tradeoff, goal: Goal, known: set[Architecture]) -> list[FrontierPoint]:
    """Networks that are not known yet: half at even ratios over the frontier, half around the answer; each once."""
    latencies = tradeoff.latencies_ms
    answer_ms, half = float(latencies[_answer(tradeoff, goal)]), NETWORKS // 2
    around = np.clip(np.linspace(answer_ms / NEAR, answer_ms * NEAR, NETWORKS - half), latencies[0], latencies[-1])
    taken = dict[int, FrontierPoint]()
    evenly = np.geomspace(max(latencies[0], 1e-9), max(latencies[-1], 1e-9), half)
    for latency_ms in [*around, *evenly]:
        for number in np.argsort(np.abs(latencies - latency_ms), kind="stable").tolist():
            if number in taken:
                continue
            point = tradeoff.points[number]
            if point.architecture not in known:
                taken[number] = point
                break
    return [taken[number] for number in sorted(taken)]


def _answer(tradeoff: Tradeoff, goal: Goal) -> int:
    """The number of the network that the goal leads to, or comes closest to it."""
    if isinstance(goal, AtMost):
        return tradeoff.best(goal.latency_ms) or 0
    if isinstance(goal, Reaching):
        number = tradeoff.fastest(goal.accuracy)
    elif isinstance(goal, NearBest):
        number = tradeoff.fastest(float(tradeoff.accuracies[-1]) - goal.within)
    else:
        raise AssertionError(goal)
    return len(tradeoff.points) - 1 if number is None else number


def _compared(
    estimator: StoredEstimator, points: Sequence[FrontierPoint], found: Sequence[MeasuredNetwork]
) -> RefinementRound:
    expected = [estimator.expect(point.architecture) for point in points]
    checked = [
        CheckedNetwork(
            choices=[list(choice) for choice in point.architecture.choices],
            latency_ms=point.latency_ms,
            accuracy=one.accuracy,
            accuracy_interval=one.interval(),
            measured_accuracy=network.accuracy,
            measured_accuracy_se=network.se,
        )
        for point, one, network in zip(points, expected, found, strict=True)
    ]
    errors = np.array([one.accuracy - one.measured_accuracy for one in checked])
    held = [low <= one.measured_accuracy <= high for one in checked if one.accuracy_interval
            for low, high in [one.accuracy_interval]]  # fmt: skip
    return RefinementRound(
        networks=len(checked),
        mean_error=float(errors.mean()),
        mean_error_se=float(errors.std(ddof=1)) / len(errors) ** 0.5,
        rmse=float((errors**2).mean()) ** 0.5,
        coverage=sum(held) / len(held) if held else None,
        measured=checked,
    )


def _with_what_was_seen(estimator: StoredEstimator, last: RefinementRound) -> StoredEstimator:
    validation = estimator.validation or EstimatorValidation(networks=0)
    seen = {
        "frontier_networks": last.networks,
        "frontier_mean_error": last.mean_error,
        "frontier_mean_error_se": last.mean_error_se,
        "frontier_coverage": last.coverage,
    }
    return replace(estimator, validation=validation.model_copy(update=seen))
