"""Scores of ensembles, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from deploynas.accuracy.ensemble_scores import calibration_error, disagreement, error, log_loss, paired_difference


def test_errors_and_disagreement_by_hand() -> None:
    one = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
    two = np.array([[0.8, 0.2], [0.1, 0.9], [0.4, 0.6], [0.2, 0.8]])
    labels = np.array([0, 1, 1, 1])
    assert error(one, labels) == 0.5 and error(two, labels) == 0.0
    assert disagreement(np.stack([one, two])) == 0.5
    assert disagreement(np.stack([one, two, two])) == pytest.approx(1 / 3)
    assert error((one + two) / 2, labels) == 0.0
    assert log_loss(one, labels) == pytest.approx(-np.log([0.9, 0.4, 0.8, 0.3]).mean())


def test_calibration_is_the_gap_between_confidence_and_accuracy_in_every_bin() -> None:
    """Confidence 0.75 with two of four right, and 0.95 with all right: gaps of 0.25 and 0.05, half the images each."""
    sure = np.array([0.75] * 4 + [0.95] * 4)
    labels = np.array([0, 0, 1, 1, 0, 0, 0, 0])
    probabilities = np.stack([sure, 1 - sure], axis=1)
    assert calibration_error(probabilities, labels) == pytest.approx((0.25 + 0.05) / 2)
    certain = np.eye(2)[labels]
    assert calibration_error(certain, labels) == 0.0


def test_the_difference_is_paired() -> None:
    labels = np.zeros(4, int)
    right, wrong = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    one, other = np.stack([right, wrong, wrong, right]), np.stack([right, right, wrong, right])
    mean, se = paired_difference(one, other, labels)
    assert mean == 0.25 and se == pytest.approx(np.std([0, 1, 0, 0], ddof=1) / 2)
    assert paired_difference(one, one, labels) == (0.0, 0.0)
