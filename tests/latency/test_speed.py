from __future__ import annotations

import numpy as np
import pytest

from deploynas.latency.speed import slowdowns


def recording(
    slow: np.ndarray, rng: np.random.Generator, entries: int = 60
) -> tuple[list[str], list[list[float]], np.ndarray]:
    """Visits in random order to entries of very different speed, on a machine with the given slowdowns."""
    true_ms = rng.uniform(0.1, 10.0, entries)
    order = np.concatenate([rng.permutation(entries) for _ in range(len(slow) // entries)])
    samples = [
        list(true_ms[i] * s * (1 + 0.01 * abs(rng.standard_normal(4)))) for i, s in zip(order, slow, strict=True)
    ]
    return [str(i) for i in order], samples, true_ms


def test_an_undisturbed_machine_has_no_slowdown(rng: np.random.Generator) -> None:
    names, samples, _ = recording(np.ones(480), rng)
    # the median of 13 visits, each the median of 4 samples of 1 %: about 0.2 %
    assert np.abs(slowdowns(names, samples) - 1).max() < 0.012


def test_phases_of_slowness_are_found_and_taken_out(rng: np.random.Generator) -> None:
    slow = np.ones(480)
    slow[100:260] = 1.3
    slow[300:340] = 1.15
    names, samples, true_ms = recording(slow, rng)
    found = slowdowns(names, samples)
    inside = np.r_[110:250, 310:330, 350:470]
    np.testing.assert_allclose(found[inside], slow[inside], rtol=0.02)
    settled = [np.median(s) / f for s, f in zip(samples, found, strict=True)]
    medians = np.array([np.median([v for n, v in zip(names, settled, strict=True) if n == str(i)]) for i in range(60)])
    np.testing.assert_allclose(medians / true_ms, 1.0, atol=0.03)


def test_a_machine_that_is_slow_most_of_the_time_is_found_out(rng: np.random.Generator) -> None:
    slow = np.full(480, 1.25)
    slow[200:300] = 1.0
    names, samples, _ = recording(slow, rng)
    np.testing.assert_allclose(slowdowns(names, samples)[np.r_[20:180, 320:460]], 1.25, rtol=0.03)


@pytest.mark.parametrize("entries", [0, 1, 5])
def test_few_entries_are_left_alone(entries: int, rng: np.random.Generator) -> None:
    names = [str(i % max(1, entries)) for i in range(40)] if entries else []
    samples = [[float(v)] for v in rng.uniform(1, 2, len(names))]
    assert (slowdowns(names, samples) == 1).all()
