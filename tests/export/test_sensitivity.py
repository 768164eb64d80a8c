"""What is lost with some parts in 8 bits, from logits on the same images."""

from __future__ import annotations

import numpy as np
import pytest

from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.kernel_check import KernelCheck
from deploynas.export.sensitivity import Sensitivity, drop_per_divergence
from deploynas.export.verification import Judged


def test_divergence_is_that_of_the_probabilities() -> None:
    fp32 = Judged(np.log([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]]), np.array([0, 1]))
    other = Judged(np.log([[0.25, 0.5, 0.25], [0.8, 0.1, 0.1]]) + 7.0, np.array([0, 1]))
    found = Sensitivity.between(fp32, other)
    one = 0.5 * np.log(2) - 0.25 * np.log(2)
    assert found.divergence == pytest.approx(one / 2)
    assert found.divergence_se == pytest.approx(np.std([one, 0.0], ddof=1) / np.sqrt(2))
    assert found.drop.drop == 0.5 and found.drop.images == 2  # the first image is lost, the second never was right


def test_small_changes_in_different_places_add_up(rng: np.random.Generator) -> None:
    """Independent noise of two sources: the divergence of both together is the sum of each alone."""
    logits, labels = rng.normal(0, 2, (20000, 10)), np.zeros(20000, int)
    first, second = rng.normal(0, 0.1, logits.shape), rng.normal(0, 0.15, logits.shape)

    def divergence(noise: np.ndarray) -> float:
        return Sensitivity.between(Judged(logits, labels), Judged(logits + noise, labels)).divergence

    assert divergence(first + second) == pytest.approx(divergence(first) + divergence(second), rel=0.05)


def test_accuracy_per_nat_weighs_by_error() -> None:
    sure, unsure = AccuracyDrop(0.9, 0.02, 0.001, 1000), AccuracyDrop(0.9, 0.5, 0.1, 1000)
    assert drop_per_divergence([Sensitivity(sure, 0.1, 0.0)]) == pytest.approx(0.2)
    both = drop_per_divergence([Sensitivity(sure, 0.1, 0.0), Sensitivity(unsure, 0.1, 0.0)])
    assert 0.2 < both < 0.21
    better = AccuracyDrop(0.9, -0.02, 0.001, 1000)
    assert drop_per_divergence([Sensitivity(better, 0.1, 0.0)]) == 0.0  # 8 bits are not credited with accuracy
    assert drop_per_divergence([Sensitivity(sure, 0.0, 0.0)]) == 0.0


def test_kernels_are_compared_on_the_images_both_have_seen() -> None:
    kernels = Judged(np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0, 0, 0]))
    emulated = Judged(np.array([[1.5, 0.0], [2.0, 1.0]]), np.array([0, 0]))
    found = KernelCheck.between(kernels, emulated)
    assert found == KernelCheck(2, 2.0, 2.0, 0.5, 0.5, 1.0)
