"""Is a budget kept? Three answers, since a machine that others use too gives two latencies."""

from __future__ import annotations

from typing import Literal

from deploynas.timing import Timing

BudgetKind = Literal["undisturbed", "p50", "p90", "p99"]
Outcome = Literal["held", "held undisturbed", "missed"]


def about(timing: Timing, kind: BudgetKind) -> float:
    """The latency that a budget of this kind is about."""
    return timing.undisturbed.latency_ms if kind == "undisturbed" else timing.clock.at(kind)


def outcome_of(timing: Timing, budget_ms: float, kind: BudgetKind) -> Outcome:
    """`held`: undisturbed, and by a caller's clock in nine inferences of ten.

    The median is not enough: a shared machine changes between two speeds, and a minute later it may be at the other.
    A caller's clock also sees the call. `held undisturbed` is possible only for a budget about that: the clock is over
    it more often than once in ten.
    """
    if about(timing, kind) > budget_ms:
        return "missed"
    if kind == "undisturbed" and timing.clock.p90_ms + timing.call_ms > budget_ms:
        return "held undisturbed"
    return "held"


def budget_words(kind: BudgetKind) -> str:
    """Which latency a budget of this kind is about."""
    return "undisturbed" if kind == "undisturbed" else f"{kind} as it was"


def outcome_phrase(timing: Timing, budget_ms: float, kind: BudgetKind) -> str:
    """What became of it, in a few words."""
    clock, quiet = timing.clock, timing.undisturbed.latency_ms
    match outcome_of(timing, budget_ms, kind):
        case "held":
            # a median may come out a hair below what is taken for undisturbed
            return "held by both" if quiet <= budget_ms else "held by the clock"
        case "held undisturbed":
            if clock.p90_ms <= budget_ms:
                return "held undisturbed, not with the call from Python"
            return "held undisturbed, " + ("missed" if clock.p50_ms > budget_ms else "not always") + " by the clock"
        case "missed":
            if min(clock.p50_ms, quiet) > budget_ms:
                return "missed by both"
            return "missed undisturbed" if kind == "undisturbed" else "missed by the clock"


def outcome_words(timing: Timing, budget_ms: float, kind: BudgetKind) -> str:
    """One sentence with both latencies."""
    clock, quiet = timing.clock, timing.undisturbed.latency_ms
    both = f"undisturbed {quiet:.4g} ms, on this machine as it was {clock.p50_ms:.4g} ms (median)"
    both += f", {clock.p90_ms:.4g} ms (p90)"
    if kind == "p99":
        both += f", {clock.p99_ms:.4g} ms (p99)"
    phrase = outcome_phrase(timing, budget_ms, kind)
    if phrase.endswith("Python"):
        both += f"; calling it adds {timing.call_ms:.2g} ms"
    return f"the budget of {budget_ms:.4g} ms ({budget_words(kind)}) is {phrase}: {both}"
