"""What a search has gained, as data: the found network beside the heaviest, the best uniform one and random ones.

All of them were timed in one interleaved run, so their latencies compare; the run is brought to the scale of the
shipped file, so that the found network has one latency wherever it appears. Accuracies compare only within a
`Judgement`: all one-shot, with weights inherited from the supernet, or all fine-tuned with the same recipe.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

Role = Literal["found", "heaviest", "uniform", "random"]
Part = Literal["validation", "test"]


class ComparedNetwork(BaseModel):
    role: Role
    architecture: str
    latency_ms: float  # measured, on the scale of the shipped file; in earlier versions as the run had it
    relative_error: float  # half-width of the 95 % interval, over the latency, within the run
    predicted_ms: float | None


class RoleAccuracy(BaseModel):
    """The accuracies of the networks of one role, and how far the found network is above them."""

    role: Role
    accuracies: list[float]  # in the order of the networks; perhaps of the first few only
    mean: float
    se: float | None = None  # of the mean, by the scatter among the networks; None for a single one
    difference: float | None = None  # the found network minus the mean; None for the found one itself
    interval: tuple[float, float] | None = None  # of the difference, 95 %


class Judgement(BaseModel):
    """Accuracies on the same images, of weights that came about in the same way."""

    weights: Literal["one-shot", "fine-tuned"]
    part: Part
    images: int
    roles: list[RoleAccuracy]

    def of(self, role: Role) -> RoleAccuracy | None:
        return next((found for found in self.roles if found.role == role), None)


class GainRecord(BaseModel):
    networks: list[ComparedNetwork]
    one_shot: Judgement
    fine_tuned: Judgement | None = None  # of some of the networks, if that was asked for

    def of(self, role: Role) -> list[ComparedNetwork]:
        return [network for network in self.networks if network.role == role]

    @property
    def found(self) -> ComparedNetwork:
        return self.of("found")[0]
