"""Fewer MACs that are not less time are said to be just that."""

from __future__ import annotations

import pytest

from deploynas.report.pruned import Margin, PrunedNetwork
from deploynas.report.pruned_words import comparison, control_warnings, latency_warnings
from deploynas.timing import Clock, Timing, Undisturbed


def network(ms: float, macs: int, faster: float | None = None, margin: Margin | None = None) -> PrunedNetwork:
    clock = Clock(
        p50_ms=ms, p90_ms=ms, p99_ms=ms, mean_ms=ms, p50_interval_ms=(ms, ms), spread=0, inferences=9, processes=2,
        warmups=1,
    )  # fmt: skip
    quiet = Undisturbed(latency_ms=ms, interval_ms=(ms, ms), how="own")
    return PrunedNetwork(
        role="original" if faster is None else "pruned",
        method="original" if faster is None else "exact",
        file="model.onnx",
        widths=[8],
        params=1,
        macs=macs,
        predicted_ms=ms,
        before_finetuning=None,
        validation_accuracy=0.5,
        test_accuracy=None,
        timing=Timing(clock=clock, undisturbed=quiet, stable=True, stable_within=0.03),
        faster=faster,
        faster_interval=None if faster is None else (faster - 0.02, faster + 0.02),
        margin=margin,
    )


@pytest.mark.parametrize(
    "after_ms, faster, told",
    [
        (1.0, 1.0, ["MACs fell by 40 %, but the measured latency did not fall: 1.000 ms before, 1.000 ms after"]),
        (1.25, 0.8, ["MACs fell by 40 %, but the measured latency rose: 1.000 ms before, 1.250 ms after"]),
        (0.9, 1 / 0.9, ["MACs fell by 40 %, the measured latency only by 10 %: 1.000 ms before, 0.900 ms after"]),
        (0.625, 1.6, []),
    ],
)
def test_whether_latency_fell_with_the_arithmetic(after_ms: float, faster: float, told: list[str]) -> None:
    assert latency_warnings(network(1.0, 100), network(after_ms, 60, faster)) == told


@pytest.mark.parametrize(
    "difference, told, warned",
    [(0.03, "exact is better than", False), (0.005, "no difference", True), (-0.03, "exact is WORSE than", True)],
)
def test_what_a_method_gains_over_a_control_is_told_with_its_error(difference, told, warned) -> None:
    margin = Margin(part="test", images=1000, difference=difference, standard_error=0.005)
    pruned, control = network(1.0, 60, 1.5), network(1.0, 60, 1.5, margin)
    assert comparison(pruned, control).startswith(told)
    assert bool(control_warnings(pruned, [control])) is warned
