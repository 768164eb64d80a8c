"""What to expect of one network: an accuracy and how uncertain it is. The one accuracy that people are shown."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

SHARE = 0.9  # of networks whose measured accuracy should be within the interval


@dataclass(frozen=True)
class Expectation:
    """Accuracy is a fraction, 0..1, one-shot: with the weights that a network inherits from the supernet."""

    accuracy: float
    se: float | None  # None: not known

    def interval(self, share: float = SHARE) -> tuple[float, float] | None:
        if self.se is None:
            return None
        half = NormalDist().inv_cdf(0.5 + share / 2) * self.se
        return max(0.0, self.accuracy - half), min(1.0, self.accuracy + half)
