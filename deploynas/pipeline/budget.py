"""From what is asked of a network to a budget in milliseconds, with the reason in words.

A budget that follows from an accuracy is the predicted latency of a network. Measured, about half of all networks take
a little longer than predicted, so what is promised is more by twice the table's mean error: the network itself stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deploynas.accuracy.expectation import Expectation
from deploynas.errors import GateError
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.goal import KNEE, AtMost, Goal, NearBest, Reaching
from deploynas.pipeline.tradeoff import Tradeoff
from deploynas.search.frontier import FrontierPoint

ALLOWANCE = 2.0  # times the table's mean error
AS_GOOD = 0.0025  # of accuracy: what nobody would notice
WORTH_NAMING = 1.2  # times faster


@dataclass(frozen=True)
class SettledBudget:
    asked_ms: float  # of the table's prediction
    promised_ms: float  # of a measurement; what a network is held to
    reason: str
    remarks: tuple[str, ...] = ()  # for people
    as_good: FrontierPoint | None = None  # much faster than what the budget buys, and expected to be as accurate


def plain_budget(latency_ms: float) -> SettledBudget:
    """As it was given, with nothing to say about what it buys."""
    return SettledBudget(latency_ms, latency_ms, f"a budget of {latency_ms:.4g} ms was given")


def settle(goal: Goal, tradeoff: Tradeoff, given: bool = True) -> SettledBudget:
    """The budget that a goal comes to; `given` says whether anybody asked for it. `GateError` if out of reach."""
    if isinstance(goal, AtMost):
        return _at_most(goal, tradeoff)
    if isinstance(goal, Reaching):
        number = tradeoff.fastest(goal.accuracy)
        if number is None:
            raise _out_of_reach(goal, tradeoff)
        why = f"the fastest that is expected to reach {100 * goal.accuracy:.4g} %"
    elif isinstance(goal, NearBest):
        number = tradeoff.fastest(float(tradeoff.accuracies[-1]) - goal.within)
        assert number is not None, "the best network is near itself"
        why = f"the fastest within {_points(goal.within)} of the best" if given else "no budget given"
    else:
        raise AssertionError(goal)
    asked_ms = float(tradeoff.latencies_ms[number])
    return SettledBudget(asked_ms, promised(asked_ms, tradeoff.table), f"{why}: {_in_words(tradeoff, number)}")


def promised(predicted_ms: float, table: LatencyTable) -> float:
    return predicted_ms * (1 + ALLOWANCE * (table.mean_error or 0.0))


def _at_most(goal: AtMost, tradeoff: Tradeoff) -> SettledBudget:
    plain, number = plain_budget(goal.latency_ms), tradeoff.best(goal.latency_ms)
    if number is None:
        return plain  # the solver says what is in the way
    remarks = list[str]()
    if number == len(tradeoff.points) - 1:
        needed = tradeoff.latencies_ms[number]
        remarks.append(
            f"the budget does not bind: the best network needs {needed:.4g} of your {goal.latency_ms:.4g} ms"
        )
    faster = _as_good(tradeoff, number)
    if faster is None:
        return SettledBudget(plain.asked_ms, plain.promised_ms, plain.reason, tuple(remarks))
    fast, slow = (tradeoff.points[i] for i in (faster, number))
    remarks.append(
        f"as good, {slow.latency_ms / fast.latency_ms:.1f} times faster: {fast.latency_ms:.4g} ms, expected to lose "
        f"{_loss(tradeoff, slow, fast)} (`--max-latency-ms {_rounded_up(fast.latency_ms)}`)"
    )
    return SettledBudget(plain.asked_ms, plain.promised_ms, plain.reason, tuple(remarks), fast)


def _as_good(tradeoff: Tradeoff, number: int) -> int | None:
    """The fastest network within a hair of this one, or within its standard error if that is more (but not above the
    knee's one point), if it is much faster.
    """
    se = _expect(tradeoff, tradeoff.points[number]).se or 0.0
    found = tradeoff.fastest(float(tradeoff.accuracies[number]) - min(KNEE, max(AS_GOOD, se)))
    assert found is not None, "the network is as good as itself"
    much = tradeoff.latencies_ms[number] >= WORTH_NAMING * tradeoff.latencies_ms[found]
    return found if much else None


def _in_words(tradeoff: Tradeoff, number: int) -> str:
    """`0.055 ms, 2.3 times faster than the heaviest network, expected to lose 0.7 ± 0.3 points against the best`."""
    point, best, table = tradeoff.points[number], tradeoff.points[-1], tradeoff.table
    heaviest_ms = table.predict(table.space.heaviest())
    parts = [
        f"{point.latency_ms:.4g} ms",
        f"{heaviest_ms / point.latency_ms:.1f} times faster than the heaviest network",
    ]
    if tradeoff.accuracies[number] == tradeoff.accuracies[-1]:
        return ", ".join([*parts, "and no network is expected to be better"])
    return ", ".join([*parts, f"expected to lose {_loss(tradeoff, best, point)} against the best"])


def _out_of_reach(goal: Reaching, tradeoff: Tradeoff) -> GateError:
    best = tradeoff.points[-1]
    return GateError(
        f"no network is expected to reach {100 * goal.accuracy:.4g} %; the best, at {best.latency_ms:.4g} ms, is "
        f"expected to have {100 * tradeoff.accuracies[-1]:.2f} %: {best.architecture}",
        hint="one-shot accuracies, before fine-tuning, which usually adds to them"
        if tradeoff.estimator.results is None
        else "an accuracy is a fraction, 0.77: 77 %",
    )


def _loss(tradeoff: Tradeoff, better: FrontierPoint, worse: FrontierPoint) -> str:
    """In points, with a standard error as if both were uncertain for reasons of their own: rather too large."""
    high, low = _expect(tradeoff, better), _expect(tradeoff, worse)
    loss = f"{100 * (high.accuracy - low.accuracy):.1f}"
    if high.se is None or low.se is None:
        return f"{loss} points"
    return f"{loss} ± {100 * math.hypot(high.se, low.se):.1f} points"


def _expect(tradeoff: Tradeoff, point: FrontierPoint) -> Expectation:
    return tradeoff.estimator.expect(point.architecture)


def _points(share: float) -> str:
    return "1 point" if share == 0.01 else f"{100 * share:.4g} points"


def _rounded_up(latency_ms: float) -> str:
    """In four digits, and not below it, so that a budget of this still buys the network."""
    step = 10 ** (math.floor(math.log10(latency_ms)) - 3) if latency_ms > 0 else 1.0
    return f"{math.ceil(latency_ms / step) * step:.4g}"
