"""Shrinking takes out noise where contributions resemble each other, and leaves alone what is known well."""

from __future__ import annotations

import numpy as np
import pytest

from deploynas.accuracy.contributions import Contributions
from deploynas.accuracy.registry import Estimand
from deploynas.accuracy.shrinkage import shrunk
from deploynas.space import Space


@pytest.fixture(scope="module")
def fashion() -> Space:
    return Space.load("fashion")


def worth(fashion: Space, rng: np.random.Generator, estimand: Estimand) -> np.ndarray:
    """Made-up contributions in which ratios and depths matter, kernels a little, and combinations not."""
    stages, decisions = fashion.stages, fashion.decisions
    depth = [np.arange(len(stage.depths)) * 0.02 for stage in stages]
    depth = [d - d.mean() + 0.004 * (r := rng.standard_normal(len(d))) - 0.004 * r.mean() for d in depth]
    block = []
    for (s, _), home in zip(decisions.places, decisions.home, strict=True):
        ratio_worth, kernel_worth = 0.01 * (1 + 0.3 * rng.standard_normal()), 0.002 * rng.standard_normal()
        values = np.array([ratio_worth * c.ratio + kernel_worth * c.kernel for c in stages[s].configs])
        values -= values.mean()
        if estimand == "paper":
            values += depth[s][home]
        block.append(values)
    return np.concatenate([*depth, *block])


@pytest.mark.parametrize(("estimand", "left"), [("projection", 0.3), ("paper", 0.8)])
def test_noise_is_taken_out_and_the_errors_stay_honest(fashion: Space, estimand: Estimand, left: float) -> None:
    before, after, covered = [], [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = worth(fashion, rng, estimand)
        noisy = Contributions(
            fashion, 0.8, 0.01, truth + 0.02 * rng.standard_normal(len(truth)), np.full(len(truth), 0.02)
        )
        found = shrunk(noisy, estimand)
        before.append(((noisy.values - truth) ** 2).mean())
        after.append(((found.values - truth) ** 2).mean())
        covered.append((np.abs(found.values - truth) < 1.96 * found.errors).mean())
    assert np.mean(after) < left * np.mean(before)  # eq. 3 as printed adds a depth's noise to all its blocks
    assert np.mean(covered) > 0.88  # variances are estimated too, some from six depths alone


@pytest.mark.parametrize("estimand", ["projection", "paper"])
def test_what_is_known_well_stays(fashion: Space, estimand: Estimand, rng: np.random.Generator) -> None:
    truth = worth(fashion, rng, estimand)
    known = Contributions(fashion, 0.8, 1e-6, truth, np.full(len(truth), 1e-6))
    found = shrunk(known, estimand)
    np.testing.assert_allclose(found.values, truth, atol=1e-5)
    assert found.base == known.base


def test_pure_noise_becomes_next_to_nothing(fashion: Space, rng: np.random.Generator) -> None:
    noise = 0.02 * rng.standard_normal(len(fashion.decisions))
    found = shrunk(Contributions(fashion, 0.8, 0.01, noise, np.full(len(noise), 0.02)), "projection")
    assert np.abs(found.values).mean() < 0.4 * np.abs(noise).mean()
