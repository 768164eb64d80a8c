"""What a search for an ensemble leaves in its result: the members' scores, and the best single network beside them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from deploynas.search.joint_budget import Running

JudgedOn = Literal["validation", "test"]


class EnsembleScores(BaseModel):
    """With inherited weights, on so many images; fractions, 0..1."""

    images: int
    mean_member_error: float
    member_errors: list[float]  # in the order of the networks
    disagreement: float  # of two members, mean of all pairs: how often they name different classes
    error: float  # of the mean of the members' probabilities
    log_loss: float
    calibration_error: float  # expected, 15 bins of equal width


class SingleScores(BaseModel):
    images: int
    error: float
    log_loss: float
    calibration_error: float


class SingleRecord(BaseModel):
    """The best single network that was found within the same total latency, by the same loss on the same images."""

    architecture: str
    choices: list[list[int]]
    latency_ms: float  # predicted
    candidates: int  # networks that it was chosen from
    scores: dict[JudgedOn, SingleScores]


class EnsembleRecord(BaseModel):
    """Its members are the networks of the result."""

    running: Running
    budget_ms: float
    latency_ms: float  # predicted: the sum (serial) or the largest (parallel) of the members'
    measured_latency_ms: float | None = None  # of its file (serial) or its slowest file on a device, by `export`
    sampling: str
    delta: float | None  # of SVGD-RD, that led to it
    sets: int  # that were compared
    repeated: int  # draws that were left out, since they named a network twice or nothing was within the budget
    networks: int  # of which predictions were asked for the sets
    posterior_steps: int  # that fitted it; 0: all options were equally likely
    sharpness: float | None  # probability of the likeliest option, mean of all decisions; None: not fitted
    scores: dict[JudgedOn, EnsembleScores]
    single: SingleRecord
    judged_on: JudgedOn
    error_difference: float  # of the ensemble less that of the single network, on those images
    error_difference_se: float
