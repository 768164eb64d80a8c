"""What a search has gained, as data: the found network beside the heaviest, the best uniform one and random ones.

All of them were timed in one interleaved run, so their latencies compare; the run is brought to the scale of the
shipped file, so that the found network has one latency wherever it appears. Accuracies compare only within a
`Judgement`: all one-shot, with weights inherited from the supernet, or all fine-tuned with the same recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from deploynas.recorded import Count, Finite, NotNegative, Positive, Uncertainty

if TYPE_CHECKING:
    from typing_extensions import Self

Role = Literal["found", "heaviest", "uniform", "random"]
Part = Literal["validation", "test"]


class ComparedNetwork(BaseModel):
    role: Role
    architecture: str
    latency_ms: Positive  # measured, on the scale of the shipped file; in earlier versions as the run had it
    relative_error: Uncertainty  # half-width of the 95 % interval, over the latency, within the run
    predicted_ms: NotNegative | None


class RoleAccuracy(BaseModel):
    """The accuracies of the networks of one role, and how far the found network is above them."""

    role: Role
    accuracies: Annotated[
        list[Finite], Field(min_length=1)
    ]  # in the order of the networks; perhaps of the first few only
    mean: Finite
    se: NotNegative | None = None  # of the mean, by the scatter among the networks; None for a single one
    difference: float | None = None  # the found network minus the mean; None for the found one itself
    interval: tuple[float, float] | None = None  # of the difference, 95 %


class Judgement(BaseModel):
    """Accuracies on the same images, of weights that came about in the same way."""

    weights: Literal["one-shot", "fine-tuned"]
    part: Part
    images: Count
    roles: list[RoleAccuracy]

    def of(self, role: Role) -> RoleAccuracy | None:
        return next((found for found in self.roles if found.role == role), None)


class GainRecord(BaseModel):
    networks: list[ComparedNetwork]
    one_shot: Judgement
    fine_tuned: Judgement | None = None  # of some of the networks, if that was asked for

    @model_validator(mode="after")
    def _found_and_judged(self) -> Self:
        """Every comparison is of the found network with others, and every judgement is of that network too."""
        if not self.of("found"):
            raise ValueError("have the network that was found")
        for judgement in filter(None, (self.one_shot, self.fine_tuned)):
            if not judgement.of("found"):
                raise ValueError("have the accuracy of the network that was found in every judgement")
            if nobody := [judged.role for judged in judgement.roles if not self.of(judged.role)]:
                raise ValueError(f"have the networks that were judged: none is `{nobody[0]}`")
        return self

    def of(self, role: Role) -> list[ComparedNetwork]:
        return [network for network in self.networks if network.role == role]

    @property
    def found(self) -> ComparedNetwork:
        return self.of("found")[0]
