"""How an ensemble fares, and why: its members' errors, how often they disagree, its own error and calibration.

An ensemble answers with the mean of its members' class probabilities.
"""

from __future__ import annotations

import itertools

import numpy as np

ECE_BINS = 15


def error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The fraction that is wrong; (images, classes)."""
    return float(wrong(probabilities, labels).mean())


def wrong(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return probabilities.argmax(1) != labels


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    right = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(right, 1e-12)).mean())


def disagreement(members: np.ndarray) -> float:
    """The fraction of images that two members class differently, mean of all pairs; (members, images, classes)."""
    classes = members.argmax(2)
    return float(np.mean([np.mean(a != b) for a, b in itertools.combinations(classes, 2)]))


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = ECE_BINS) -> float:
    """Expected calibration error: |accuracy - confidence| in bins of equal width, weighted by their images."""
    confidence = probabilities.max(1)
    right = ~wrong(probabilities, labels)
    number = np.minimum((confidence * bins).astype(int), bins - 1)
    apart = np.bincount(number, right - confidence, minlength=bins)
    return float(np.abs(apart).sum() / len(labels))


def paired_difference(one: np.ndarray, other: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The error of one less that of the other, and its standard error over the images that both saw."""
    apart = wrong(one, labels).astype(float) - wrong(other, labels)
    return float(apart.mean()), float(apart.std(ddof=1) / len(apart) ** 0.5)
