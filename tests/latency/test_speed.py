from __future__ import annotations

import numpy as np
import pytest

from deploynas.latency.speed import slowdowns

ENTRIES, REFERENCES = 60, {str(i) for i in range(40)}


def recording(slow: np.ndarray, rng: np.random.Generator) -> tuple[list[str], list[list[float]], np.ndarray]:
    """Visits in random order to entries of very different speed; `slow` has a slowdown for every inference."""
    true_ms = rng.uniform(0.1, 10.0, ENTRIES)
    order = np.concatenate([rng.permutation(ENTRIES) for _ in range(len(slow) // ENTRIES)])
    jitter = 1 + 0.01 * np.abs(rng.standard_normal(slow.shape))
    samples = true_ms[order][:, None] * slow * jitter
    return [str(i) for i in order], samples.tolist(), true_ms


def visits(slow: np.ndarray) -> np.ndarray:
    """The same slowdown for all inferences of a visit."""
    return np.repeat(slow[:, None], 6, axis=1)


def settled(names: list[str], samples: list[list[float]], slow: np.ndarray) -> np.ndarray:
    """The median of every entry's inferences, slowdowns taken out."""
    by_entry: dict[str, list[float]] = {}
    for name, sample, factor in zip(names, samples, slow, strict=True):
        by_entry.setdefault(name, []).extend(np.asarray(sample) / factor)
    return np.array([np.median(by_entry[str(i)]) for i in range(ENTRIES)])


def test_an_undisturbed_machine_has_hardly_any_slowdown(rng: np.random.Generator) -> None:
    names, samples, _ = recording(np.ones((480, 6)), rng)
    # the median of |normal| jitter is 0.7 % above its lowest
    assert np.abs(slowdowns(names, samples, REFERENCES) - 1).max() < 0.02


def test_phases_of_slowness_are_found_and_taken_out(rng: np.random.Generator) -> None:
    slow = np.ones(480)
    slow[100:260] = 1.3
    slow[300:340] = 1.15
    names, samples, true_ms = recording(visits(slow), rng)
    found = slowdowns(names, samples, REFERENCES)
    inside = np.r_[110:250, 310:330, 350:470]
    np.testing.assert_allclose(found[inside], slow[inside], rtol=0.02)
    np.testing.assert_allclose(settled(names, samples, found) / true_ms, 1.0, atol=0.03)


def test_a_machine_that_is_always_disturbed_is_known_by_its_short_quiet_moments(rng: np.random.Generator) -> None:
    """One inference in ten of a reference falls between two disturbances; whole networks never do."""
    slow = np.full((600, 6), 1.4)
    slow[rng.uniform(size=slow.shape) < 0.1] = 1.0
    names, samples, true_ms = recording(slow, rng)
    for i, name in enumerate(names):
        if name not in REFERENCES:
            samples[i] = list(1.4 * true_ms[int(name)] * (1 + 0.01 * np.abs(rng.standard_normal(6))))
    found = slowdowns(names, samples, REFERENCES)
    np.testing.assert_allclose(found, 1.4, rtol=0.05)
    np.testing.assert_allclose(settled(names, samples, found) / true_ms, 1.0, atol=0.04)


@pytest.mark.parametrize("references", [0, 1, 4])
def test_without_references_nothing_is_taken_out(references: int, rng: np.random.Generator) -> None:
    names, samples, _ = recording(np.ones((120, 6)), rng)
    assert (slowdowns(names, samples, {str(i) for i in range(references)}) == 1).all()


def test_no_visits_no_slowdowns() -> None:
    assert slowdowns([], [], REFERENCES).size == 0
