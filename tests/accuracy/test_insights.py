"""Insights are the averages of IQNAS appendix J, with their errors and costs; sentences only where those allow."""

from __future__ import annotations

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.bilinear import StandardErrors
from deploynas.accuracy.insights import findings_of, insights_file, insights_of

SPACE = dn.Space.load("imagenet")


def estimator(se: float = 0.001, seed: int = 0) -> dn.BilinearEstimator:
    """SE is worth 1 point in stage 5 and nothing elsewhere; a fourth block 0.5 points in stage 2."""
    rng = np.random.default_rng(seed)
    depth = [[0.0] * len(s.depths) for s in SPACE.stages]
    depth[1] = [0.0, 0.0, 0.005]
    block = [[[0.01 * (s == 4) * bool(c.se) for c in stage.configs] for _ in range(4)]
             for s, stage in enumerate(SPACE.stages)]  # fmt: skip
    noisy = [np.array(stage) + rng.normal(scale=se, size=(4, 12)) for stage in block]
    return dn.BilinearEstimator.from_arrays(SPACE, 0.7, depth, noisy, errors(se))


def errors(se: float) -> StandardErrors:
    return StandardErrors.checked(SPACE, se, [[se] * 3] * 5, [np.full((4, 12), se)] * 5)


def find(insights, aspect, place, change=None):
    (one,) = [i for i in insights if (i.aspect, i.place) == (aspect, place) and change in (None, i.change)]
    return one


def test_means_are_those_of_appendix_j():
    e = estimator()
    block = np.array(e.block)
    with_se = np.array([bool(c.se) for c in SPACE.stages[0].configs])
    insights = insights_of(e)
    difference = block[:, :, with_se].mean(2) - block[:, :, ~with_se].mean(2)
    assert find(insights, "se", "stage 3").gain == pytest.approx(difference[2].mean())
    assert find(insights, "se", "block 2").gain == pytest.approx(difference[:, 1].mean())
    ratio = np.array([c.ratio for c in SPACE.stages[0].configs])
    wide = block[0][:, ratio == 6].mean() - block[0][:, ratio == 4].mean()
    assert find(insights, "expansion", "stage 1", "4 → 6").gain == pytest.approx(wide)
    assert find(insights, "depth", "stage 2", "3 → 4").gain == pytest.approx(0.005)


def test_errors_of_comparisons_are_right():
    """Simulated: deviations of independent means of known variance."""
    rng, sigma = np.random.default_rng(0), 0.002
    gains, stated = [], None
    for _ in range(200):
        raw = [rng.normal(scale=sigma, size=(4, 12)) for _ in SPACE.stages]
        deviations = [r - r.mean(1, keepdims=True) for r in raw]
        se = sigma * (11 / 12) ** 0.5
        e = dn.BilinearEstimator.from_arrays(SPACE, 0.7, [[0.0] * 3] * 5, deviations, errors(se))
        one = find(insights_of(e), "kernel", "stage 1")
        gains.append(one.gain)
        stated = one.gain_se
    assert stated == pytest.approx(np.std(gains), rel=0.15)  # a deviation of 200 is known to 5 %


def test_costs_are_the_same_means_over_the_table():
    rng = np.random.default_rng(1)
    block_ms = tuple(tuple(tuple(row) for row in rng.random((4, 12))) for _ in SPACE.stages)
    insights = insights_of(estimator(), block_ms)
    third = find(insights, "depth", "stage 1", "2 → 3")
    assert third.cost_ms == pytest.approx(np.mean(block_ms[0][2]))
    with_se = np.array([bool(c.se) for c in SPACE.stages[0].configs])
    costs = np.array(block_ms[4])
    se = find(insights, "se", "stage 5")
    assert se.cost_ms == pytest.approx(costs[:, with_se].mean() - costs[:, ~with_se].mean())
    assert se.gain_per_ms == (pytest.approx(se.gain / se.cost_ms) if se.cost_ms > 0 else None)


def test_what_was_planted_is_said_and_nothing_else():
    findings = findings_of(insights_of(estimator()))
    assert findings[0].startswith("Squeeze-and-excitation pays most in stage 5: +1.0")
    assert all("stage 5" in f or "block" in f or "4 blocks instead of 3 pay" in f for f in findings)


def test_large_error_bars_silence_it():
    noise = estimator(se=0.001)
    loud = dn.BilinearEstimator.from_arrays(SPACE, 0.7, noise.depth, noise.block, errors(0.05))
    assert findings_of(insights_of(loud)) == []


def test_without_errors_nothing_is_claimed():
    e = estimator()
    bare = dn.BilinearEstimator.from_arrays(SPACE, 0.7, e.depth, e.block)
    document = insights_file(bare, insights_of(bare))
    assert document.findings == [] and document.insights[0].gain_se is None
