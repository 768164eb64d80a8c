"""What a network loses when some of its parts are in 8 bits: classes, and how far its probabilities move.

Few images change their class when one part is rounded, so the accuracy that is lost drowns in noise. How far the
probabilities move (the divergence of Kullback and Leibler from fp32, in nats) is seen in every image, and what parts
add to it adds up as long as it is small: roundings in different parts have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.verification import Judged


@dataclass(frozen=True)
class Sensitivity:
    """Against fp32 on the same images."""

    drop: AccuracyDrop
    divergence: float  # nats, on average over the images
    divergence_se: float

    @classmethod
    def between(cls, fp32: Judged, other: Judged) -> Sensitivity:
        before, after = _log_odds(fp32.logits), _log_odds(other.logits)
        moved = np.sum(np.exp(before) * (before - after), axis=1)
        se = float(moved.std(ddof=1) / np.sqrt(len(moved))) if len(moved) > 1 else 0.0
        return cls(AccuracyDrop.between(fp32.correct, other.correct), float(moved.mean()), se)


def drop_per_divergence(seen: Sequence[Sensitivity]) -> float:
    """How much accuracy a nat costs in this network: least squares through the origin, each by its standard error."""
    divergence = np.array([one.divergence for one in seen])
    drop = np.array([one.drop.drop for one in seen])
    # one image more or less is the least that can be told
    weight = np.array([max(one.drop.se, 1 / max(1, one.drop.images)) for one in seen]) ** -2.0
    total = float(np.sum(weight * divergence**2))
    return max(0.0, float(np.sum(weight * divergence * drop)) / total) if total else 0.0


def _log_odds(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
