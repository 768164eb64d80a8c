"""What integer kernels make of an 8-bit file, beside its emulation: every operator in float, between conversions.

The emulation is what the file says, the same on every processor. Kernels round halves otherwise, which changes few
logits and little; sums that saturate change classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.export.verification import ImageStream, Judged, judged

IMAGES = 1000  # emulation takes several times as long


@dataclass(frozen=True)
class KernelCheck:
    """Accuracies are fractions of the same images."""

    images: int
    max_difference: float  # of a logit
    largest_logit: float
    same_class: float  # share of the images
    accuracy: float
    emulated_accuracy: float

    @classmethod
    def between(cls, kernels: Judged, emulated: Judged) -> KernelCheck:
        """Of the images that both have seen, which are the first of either."""
        both = min(len(kernels.labels), len(emulated.labels))
        ours, theirs = kernels.first(both), emulated.first(both)
        return cls(
            images=both,
            max_difference=float(np.abs(ours.logits - theirs.logits).max()),
            largest_logit=float(np.abs(theirs.logits).max()),
            same_class=float((ours.predicted == theirs.predicted).mean()),
            accuracy=ours.accuracy,
            emulated_accuracy=theirs.accuracy,
        )


def check_kernels(content: bytes, images: ImageStream, kernels: Judged) -> KernelCheck:
    """`kernels`: what they made of the same images."""
    return KernelCheck.between(kernels, judged(content, images, as_written=True, most=IMAGES))
