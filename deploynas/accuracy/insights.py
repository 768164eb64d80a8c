"""What an estimator teaches: the worth of depth, width, kernel and squeeze-and-excitation, and what they cost.

Every insight is one of the `comparisons`. Where samples were compared before they became an estimator, that is what is
shown and tested: unbiased, with errors of its own. Else it follows from contributions and their standard errors; from
shrunk ones no sentence is made, since they are biased towards what other places say. A finding is put into words only
where it holds among all claims made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

from pydantic import BaseModel, Field

from deploynas.accuracy.at_network import worth_at
from deploynas.accuracy.averages import average_worth
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.comparisons import OTHERS, comparisons_of
from deploynas.accuracy.differences import Difference, variances_of
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.explanation_files import AtNetwork
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.landscape_record import Landscape
from deploynas.accuracy.relaxed import RelaxedEstimator
from deploynas.accuracy.training_free.estimator import TrainingFreeEstimator
from deploynas.errors import InputError
from deploynas.provenance import ResultsRecord
from deploynas.space import Architecture, Ragged
from deploynas.space.structure import INPUT_SIZE

CHANCE = 0.05  # that any sentence at all is said by accident
FINDINGS = 8


@dataclass(frozen=True)
class Insight:
    """The mean effect of one change in one place. Accuracy is a fraction."""

    aspect: str  # `depth`, or a factor of the options: `expansion`, `kernel`, `se`
    change: str  # "3 → 5"
    place: str  # "stage 2", "block 1"
    gain: float
    gain_se: float | None
    cost_ms: float | None
    degrees: float | None = None  # of freedom of the standard error; None: no sentence may rest on it

    @property
    def key(self) -> tuple[str, str, str]:
        return self.aspect, self.change, self.place

    def half_width(self, claims: int) -> float:
        """Of an interval that is right for all of so many claims together, but for CHANCE."""
        assert self.gain_se is not None and self.degrees is not None
        return self.gain_se * quantile(1 - CHANCE / 2 / claims, self.degrees)

    @property
    def gain_per_ms(self) -> float | None:
        """None where there is no latency, or where the change makes nothing slower."""
        return self.gain / self.cost_ms if self.cost_ms is not None and self.cost_ms > 0 else None


class InsightRecord(BaseModel):
    aspect: str
    change: str
    place: str
    gain: float
    gain_se: float | None
    cost_ms: float | None
    gain_per_ms: float | None


class InsightsFile(BaseModel):
    schema_: Literal["deploynas/insights"] = Field(default="deploynas/insights", alias="schema")
    schema_version: int = 1
    space: str
    device: str | None
    insights: list[InsightRecord]
    findings: list[str]
    at: AtNetwork | None = None  # what single changes bring to one network
    validation: dict[str, Any] | None
    results: ResultsRecord | None = None  # that the estimator was made from, if not from a supernet
    ranked_by: str | None = None  # what gains are in the unit of, where an estimator only ranks; None: accuracy
    landscape: Landscape | None = None  # around the weights of the network that was looked at, and of others


def quantile(p: float, degrees: float) -> float:
    """Of Student's t."""
    from scipy.special import stdtrit

    return NormalDist().inv_cdf(p) if degrees == math.inf else float(stdtrit(degrees, p))


def insights_of(estimator: StoredEstimator, block_ms: Ragged | None = None) -> list[Insight]:
    """All of them; with a latency table's `block_ms`, each beside what it costs."""
    comparisons = comparisons_of(estimator.space.decisions)
    costs = {c.key: None if block_ms is None else c.cost_ms(block_ms) for c in comparisons}
    if estimator.comparisons:
        return [
            Insight(*found.key, found.gain, found.gain_se, costs.get(found.key), found.degrees)
            for found in estimator.comparisons
        ]
    if isinstance(estimator, BilinearEstimator):
        decisions = estimator.space.decisions
        values = decisions.flat(estimator.depth, estimator.block)
        variances = None if estimator.errors is None else variances_of(decisions, estimator.errors)
        degrees = None if estimator.provenance.get("shrunk") else math.inf
        return [
            Insight(
                *c.key,
                float(c.weights @ values),
                None if variances is None else float(c.weights**2 @ variances) ** 0.5,
                costs[c.key],
                degrees,
            )
            for c in comparisons
        ]
    if isinstance(estimator, TrainingFreeEstimator | RelaxedEstimator):
        # in the unit of its score; no sentence rests on it
        return [replace(insight, degrees=None) for insight in insights_of(estimator.worth, block_ms)]
    if isinstance(estimator, IndexedEstimator):
        worth = average_worth(estimator)
        return [Insight(*c.key, *worth.compare(c.weights), costs[c.key]) for c in comparisons]
    raise InputError(
        "the estimator has no contributions of single decisions and holds no comparisons of them",
        hint="`--at NETWORK` says what changes of one network are worth; or estimate again with more networks",
    )


@dataclass(frozen=True)
class Claim:
    """An insight that its error bars allow to be put into words."""

    insight: Insight
    largest: bool  # of the same change in all places of the same kind


def claims_of(insights: Sequence[Insight]) -> list[Claim]:
    """Largest effects first. That any is false, of all of them together, has a probability of CHANCE at most.

    Of every insight two things may be claimed, that there is an effect and that it is the largest of its kind:
    Bonferroni over both.
    """
    known = [i for i in insights if i.gain_se and i.degrees is not None]
    claims = 2 * len(known)
    sure = [i for i in known if abs(i.gain) > i.half_width(claims)]
    return [Claim(i, _stands_out(i, known, claims)) for i in sorted(sure, key=lambda i: -abs(i.gain))]


Worth = Mapping[tuple[str, str, str], Difference | None]  # of comparisons, by their keys


def findings_of(insights: Sequence[Insight], here: Worth | None = None) -> list[str]:
    """The strongest claims, as sentences; `here` is what the same changes are worth at a network."""
    found = []
    for claim in claims_of(insights)[:FINDINGS]:
        at_network = here.get(claim.insight.key) if here is not None else None
        found.append(_sentence(claim) + (f"; at this network {_points(at_network)}" if at_network else ""))
    return found


def worth_here(estimator: StoredEstimator, insights: Sequence[Insight], network: Architecture) -> Worth:
    """Of the insights that are put into words."""
    said = {claim.insight.key for claim in claims_of(insights)[:FINDINGS]}
    comparisons = [c for c in comparisons_of(estimator.space.decisions) if c.key in said]
    return {c.key: worth_at(estimator, c, network) for c in comparisons}


def _points(worth: Difference) -> str:
    error = "" if worth.se is None else f" ± {100 * worth.se:.2f}"
    return f"{100 * worth.accuracy:+.2f}{error} points"


def _stands_out(insight: Insight, others: Sequence[Insight], claims: int) -> bool:
    """Is it surely the largest of the same change in places of the same kind?

    Half widths are added: right however the errors of two places depend on each other.
    """
    kind = insight.place.split()[0]
    rivals = [
        o
        for o in others
        if o is not insight and (o.aspect, o.change, o.place.split()[0]) == (insight.aspect, insight.change, kind)
    ]
    return bool(rivals) and all(
        insight.gain - o.gain > insight.half_width(claims) + o.half_width(claims) for o in rivals
    )


def _sentence(claim: Claim) -> str:
    insight = claim.insight
    low, high = insight.change.split(" → ") if insight.change != OTHERS else ("something else", "")
    what = {
        "depth": f"{high} blocks instead of {low}",
        "expansion": f"expansion {high} instead of {low}",
        "kernel": f"a {high}x{high} kernel instead of {low}x{low}",
        INPUT_SIZE: f"images of {high}x{high} instead of {low}x{low}",
        "se": "squeeze-and-excitation" + ("" if low == "none" else f" {high} instead of {low}"),
    }.get(insight.aspect, " ".join(filter(None, [insight.aspect, high, f"instead of {low}"])))
    several = insight.aspect == INPUT_SIZE or (insight.aspect == "depth" and high != "1")
    ending = "" if several else "s"  # blocks pay, a kernel pays
    verb = (f"pay{ending} most" if claim.largest else f"pay{ending}") if insight.gain > 0 else f"harm{ending}"
    points = _points(Difference(insight.gain, insight.gain_se))
    cost = ""
    if insight.cost_ms is not None:
        cost = f" for {insight.cost_ms:.3g} ms" if insight.cost_ms > 0 else " at no latency"
    where = "" if insight.aspect == INPUT_SIZE else f" in {insight.place}"
    text = f"{what} {verb}{where}: {points}{cost}"
    return text[0].upper() + text[1:]


def insights_file(
    estimator: StoredEstimator,
    insights: Sequence[Insight],
    device: str | None = None,
    at: AtNetwork | None = None,
    here: Worth | None = None,
) -> InsightsFile:
    validation = estimator.validation
    return InsightsFile(
        space=estimator.space.name,
        device=device,
        insights=[InsightRecord(**vars(i), gain_per_ms=i.gain_per_ms) for i in insights],
        findings=findings_of(insights, here),
        at=at,
        validation=validation.model_dump() if validation else None,
        results=estimator.results,
        ranked_by=estimator.ranked_by,
    )
