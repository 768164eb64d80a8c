"""What a file with fewer bits loses against the fp32 file: image by image, since both see the same images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from deploynas.errors import GateError

WORDS = {"fp16": "in fp16", "bf16": "in bf16", "int8": "in 8 bits"}


@dataclass(frozen=True)
class AccuracyDrop:
    """Accuracies are fractions of one and the same set of images."""

    accuracy: float
    drop: float  # below the fp32 file; negative where it is more accurate
    se: float
    images: int = 0

    @classmethod
    def between(cls, fp32: np.ndarray, other: np.ndarray) -> AccuracyDrop:
        """From which images each file classifies correctly."""
        lost = fp32.astype(float) - other.astype(float)
        se = float(lost.std(ddof=1) / np.sqrt(len(lost))) if len(lost) > 1 else 0.0
        return cls(float(other.mean()), float(lost.mean()), se, len(lost))

    @property
    def interval(self) -> tuple[float, float]:
        """95 %."""
        return self.drop - 1.96 * self.se, self.drop + 1.96 * self.se

    def words(self, most: float) -> str:
        """Against what may be lost."""
        points, allowed = f"{abs(100 * self.drop):.2f}", f"{100 * most:g}"
        if self.drop > most:
            return f"it loses {points} points of accuracy, more than the {allowed} that are allowed"
        if self.drop <= 0:
            return f"it is {points} points more accurate" if self.drop < 0 else "it is as accurate"
        return f"it loses {points} points of accuracy of the {allowed} that are allowed"

    def require(self, precision: Literal["fp16", "bf16", "int8"], most: float, hint: str) -> None:
        """`GateError` if more is lost than may be."""
        if self.drop > most:
            raise GateError(
                f"{WORDS[precision]} the network loses {100 * self.drop:.2f} points of accuracy "
                f"({100 * self.accuracy:.2f} %), more than the {100 * most:g} that are allowed",
                hint=hint,
            )
