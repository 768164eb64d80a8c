"""Whether a file with fewer bits than fp32 was shipped, and what that rests on, as a report keeps it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from deploynas.recorded import Finite, Fraction, Positive

Asked = Literal["measured", "force", "device"]


class VerdictRecord(BaseModel):
    precision: str
    ships: bool
    asked: Asked  # shipped if it pays; whatever was measured; or it is the precision of the device
    words: str  # in one line, for people
    # how many times as fast as the fp32 file, timed interleaved, with the 95 % interval; None: it could not be timed
    faster: Positive | None = None
    faster_interval: tuple[float, float] | None = None
    latency_ms: Positive | None = None  # undisturbed
    size_bytes: int | None = None
    accuracy: Fraction | None = None  # of the validation images; None: untrained, or it could not be judged
    accuracy_drop: Finite | None = None  # below the fp32 file, with its 95 % interval
    accuracy_drop_interval: tuple[float, float] | None = None
    max_accuracy_drop: float | None = None  # None: untrained

    @property
    def doubtful(self) -> bool:
        """It ships, and would not if that were left to what was measured."""
        slower = self.faster_interval is not None and self.faster_interval[0] <= 1
        most = self.max_accuracy_drop
        worse = most is not None and (self.accuracy_drop is None or self.accuracy_drop > most)  # None: not known
        return self.asked != "measured" and (slower or worse)
