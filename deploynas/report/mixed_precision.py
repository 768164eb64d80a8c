"""Which parts of a network are in 8 bits, why, and what other assignments there were, as a report keeps it."""

from __future__ import annotations

from pydantic import BaseModel

from deploynas.recorded import Count, Finite, NotNegative, Positive


class PartPrecision(BaseModel):
    """One part of the network, which is in 8 bits or not."""

    name: str
    text: str  # its configuration, for people
    in_8_bits: bool  # in the file that was chosen
    # when it alone is in 8 bits: accuracy lost on the calibration images, and how far the probabilities move, in nats
    accuracy_drop: Finite
    accuracy_drop_se: NotNegative
    divergence: Finite
    divergence_se: NotNegative
    # time saved when it is in 8 bits: with its neighbours, or alone, both conversions at its borders included
    gain_ms: Finite
    gain_alone_ms: Finite


class AssignmentPoint(BaseModel):
    """One choice of parts. Predicted from the calibration images, measured on the validation images."""

    in_8_bits: list[str]
    predicted_ms: Finite
    predicted_drop: Finite
    measured_ms: Positive | None = None  # None: not measured
    measured_drop: Finite | None = None  # of accuracy, below fp32
    measured_drop_se: NotNegative | None = None
    chosen: bool = False


class MixedPrecisionRecord(BaseModel):
    parts: list[PartPrecision]
    # from fp32 to the fastest, each the least loss for its time and the least time for its loss, by prediction; slowest
    # first
    frontier: list[AssignmentPoint]
    assignments_timed: Count  # that the gains come from
    noise_ms: NotNegative  # standard deviation of a timed assignment around the sum of gains
    calibration_images: Count
    drop_per_divergence: Finite
    goal: str  # in words
