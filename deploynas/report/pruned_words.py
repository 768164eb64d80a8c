"""What pruning came to, in sentences: nothing that a user of a pruner wants to know may go unsaid.

Above all whether the measured latency fell with the arithmetic: fewer multiplications need not be less time.
"""

from __future__ import annotations

from collections.abc import Sequence

from deploynas.report.numbers import ms, percent
from deploynas.report.pruned import PrunedNetwork

LITTLE = 0.5  # of the share of MACs that went: less than that gone from the latency is worth a word


def latency_warnings(original: PrunedNetwork, pruned: PrunedNetwork) -> list[str]:
    """Whether latency fell at all, and if so as much as the arithmetic did."""
    macs_gone = 1 - pruned.macs / original.macs
    before, after = (one.timing.undisturbed.latency_ms for one in (original, pruned))
    assert pruned.faster is not None and pruned.faster_interval is not None
    told = f"MACs fell by {percent(macs_gone, 0)}"
    if pruned.faster_interval[0] <= 1:
        verb = "rose" if pruned.faster_interval[1] < 1 else "did not fall"
        return [f"{told}, but the measured latency {verb}: {ms(before)} before, {ms(after)} after"]
    gone = 1 - 1 / pruned.faster
    if gone < LITTLE * macs_gone:
        return [f"{told}, the measured latency only by {percent(gone, 0)}: {ms(before)} before, {ms(after)} after"]
    return []


def comparison(pruned: PrunedNetwork, control: PrunedNetwork) -> str:
    """Against another way to the same latency, as far as the images can tell."""
    margin = control.margin
    assert margin is not None
    half = 1.96 * margin.standard_error
    points = f"{100 * margin.difference:+.1f} ± {100 * half:.1f} points (95 %, {margin.images} {margin.part} images)"
    if abs(margin.difference) <= half:
        return f"no difference between {pruned.method} and {control.method} pruning can be told: {points}"
    word = "better" if margin.difference > 0 else "WORSE"
    return f"{pruned.method} is {word} than {control.method} pruning of the same latency: {points}"


def control_warnings(pruned: PrunedNetwork, controls: Sequence[PrunedNetwork]) -> list[str]:
    """Where nothing was gained over a way that costs nothing."""
    return [
        comparison(pruned, control)
        for control in controls
        if control.margin and control.margin.difference <= 1.96 * control.margin.standard_error
    ]
