"""Which parts of a network are in 8 bits, why, and what other assignments there were, as a report keeps it."""

from __future__ import annotations

from pydantic import BaseModel


class PartPrecision(BaseModel):
    """One part of the network, which is in 8 bits or not."""

    name: str
    text: str  # its configuration, for people
    in_8_bits: bool  # in the file that was chosen
    # when it alone is in 8 bits: accuracy lost on the calibration images, and how far the probabilities move, in nats
    accuracy_drop: float
    accuracy_drop_se: float
    divergence: float
    divergence_se: float
    # time saved when it is in 8 bits: with its neighbours, or alone, both conversions at its borders included
    gain_ms: float
    gain_alone_ms: float


class AssignmentPoint(BaseModel):
    """One choice of parts. Predicted from the calibration images, measured on the validation images."""

    in_8_bits: list[str]
    predicted_ms: float
    predicted_drop: float
    measured_ms: float | None = None  # None: not measured
    measured_drop: float | None = None  # of accuracy, below fp32
    measured_drop_se: float | None = None
    chosen: bool = False


class MixedPrecisionRecord(BaseModel):
    parts: list[PartPrecision]
    # from fp32 to the fastest, each the least loss for its time and the least time for its loss, by prediction; slowest
    # first
    frontier: list[AssignmentPoint]
    assignments_timed: int  # that the gains come from
    noise_ms: float  # standard deviation of a timed assignment around the sum of gains
    calibration_images: int
    drop_per_divergence: float
    goal: str  # in words
