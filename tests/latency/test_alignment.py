from __future__ import annotations

import numpy as np

from deploynas.latency.alignment import align


def flickering(rng: np.random.Generator, entries: int, visits: int, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of times [entry, visit, run] on a machine with two speeds, and the truth."""
    truth = np.log(rng.uniform(5.0, 9.0, entries))
    slow = rng.uniform(size=(entries, visits, 1)) < 0.5  # whole visits, and some single runs
    slow = slow ^ (rng.uniform(size=(entries, visits, runs)) < 0.15)
    noise = 0.01 * np.abs(rng.standard_normal((entries, visits, runs)))
    return truth[:, None, None] + 0.27 * slow + noise, truth


def aligned(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    entries, visits, _ = times.shape
    samples = list(times.reshape(entries * visits, -1))
    entry = np.repeat(np.arange(entries), visits)
    return align(entry, samples, np.ones(len(entry)))


def test_two_speeds_are_told_apart_where_medians_mix_them(rng: np.random.Generator) -> None:
    times, truth = flickering(rng, entries=50, visits=8, runs=4)
    location, _ = aligned(times)
    mistake = (location - truth) - np.median(location - truth)
    medians = np.median(times, axis=(1, 2)) - truth
    assert np.std(medians) > 0.05
    assert np.std(mistake) < 0.005


def test_the_error_covers_the_truth(rng: np.random.Generator) -> None:
    covered = []
    for _ in range(4):
        times, truth = flickering(rng, entries=40, visits=8, runs=4)
        location, error = aligned(times)
        mistake = (location - truth) - np.median(location - truth)
        covered.extend(np.abs(mistake) <= error)
    assert 0.85 < np.mean(covered) <= 1


def test_quiet_times_are_left_as_they_are(rng: np.random.Generator) -> None:
    times = np.log(rng.uniform(1, 2, 12))[:, None, None] + 0.002 * rng.standard_normal((12, 6, 4))
    location, error = aligned(times)
    moved = location - np.median(times, axis=(1, 2))
    assert np.abs(moved - np.median(moved)).max() < 0.003
    assert error.max() < 0.01


def test_one_visit_has_no_known_error(rng: np.random.Generator) -> None:
    _, error = aligned(rng.standard_normal((10, 1, 4)))
    assert np.isinf(error).all()


def test_an_entry_that_was_hardly_ever_undisturbed_does_not_run_away(rng: np.random.Generator) -> None:
    times, truth = flickering(rng, entries=50, visits=8, runs=4)
    times[7] += rng.uniform(0.0, 2.0, times[7].shape) * (rng.uniform(size=times[7].shape) < 0.9)
    location, _ = aligned(times)
    mistake = (location - truth) - np.median(location - truth)
    assert -0.1 < mistake[7] < 1.0  # somewhere among its own samples
    assert np.delete(np.abs(mistake), 7).max() < 0.02
