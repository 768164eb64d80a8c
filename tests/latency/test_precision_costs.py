"""Gains and borders are found again from whole networks that are made of them."""

from __future__ import annotations

import numpy as np
import pytest

from deploynas.latency.precision_costs import PrecisionCosts, assignments_to_time, fit_costs

ELEMENTS = (3072, 50176, 75264, 75264, 20000, 15680, 9408, 9408)
N = len(ELEMENTS)


def planted(rng: np.random.Generator) -> PrecisionCosts:
    share = np.asarray(ELEMENTS[1:]) / max(ELEMENTS)
    enter, leave = (a * share + rng.normal(0, 0.01, N - 1) for a in (0.05, 0.09))
    return PrecisionCosts(2.0, rng.normal(0.1, 0.1, N), enter, leave, 0.0)


def test_assignments_are_told_apart() -> None:
    every = assignments_to_time(N)
    assert every[0] == (False,) * N and (True,) * N in every
    assert len(set(every)) == len(every) == 2 + 4 * N - 6  # the ends are prefixes, suffixes and single parts alike
    assert len(assignments_to_time(1)) == 2


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_latencies_of_other_assignments_are_predicted(noise: float, rng: np.random.Generator) -> None:
    truth, every = planted(rng), assignments_to_time(N)
    found = fit_costs(every, [truth.predict(x) + rng.normal(0, noise) for x in every], ELEMENTS)
    others = [tuple(bool(bit) for bit in rng.integers(0, 2, N)) for _ in range(200)]
    errors = np.array([found.predict(x) - truth.predict(x) for x in others])
    assert np.sqrt(np.mean(errors**2)) <= max(0.003, 2.5 * noise)  # exact but for what the prior pulls at
    if noise:
        assert 0.5 * noise < found.noise_ms < 2 * noise


def test_fp32_is_the_base_and_a_part_alone_has_both_borders() -> None:
    costs = PrecisionCosts(3.0, np.array([0.5, 0.6, 0.7]), np.array([0.1, 0.2]), np.array([0.3, 0.4]), 0.0)
    assert costs.predict([False, False, False]) == 3.0
    assert costs.predict([False, True, False]) == pytest.approx(3.0 - 0.6 + 0.1 + 0.4)
    assert costs.predict([True, True, True]) == pytest.approx(3.0 - 1.8)
    assert costs.predict([True, False, False]) == pytest.approx(3.0 - 0.5 + 0.3)
