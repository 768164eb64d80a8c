"""What an estimator teaches: the worth of depth, width, kernel and squeeze-and-excitation, and what they cost.

The averages are those of the paper's Figure 5 and IQNAS appendix J: a deeper stage against the next shallower
one, and means over configurations with a property against those without, over the blocks of a stage or over
the stages of a block. Standard errors follow from those of the contributions; a finding is put into words only
where it holds among all comparisons made.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.space import Decisions, Ragged

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
    validation: dict[str, Any] | None


def insights_of(estimator: BilinearEstimator, block_ms: Ragged | None = None) -> list[Insight]:
    """All of them; with a latency table's `block_ms`, each beside what it costs."""
    groups = estimator.space.decisions.groups
    found = [insight for s in range(len(groups)) for insight in _depth(estimator, s, block_ms)]
    options = [option for group in groups for choice in group.choices for option in choice.options]
    aspects = list(dict.fromkeys(name for option in options for name, _ in option.factors))
    for aspect in aspects:
        for s, group in enumerate(groups):
            blocks = [(s, b) for b in range(len(group.choices))]
            found += _property(estimator, aspect, f"stage {s + 1}", blocks, block_ms)
    for aspect in aspects:
        for b in range(max(len(group.choices) for group in groups)):
            blocks = [(s, b) for s, group in enumerate(groups) if b < len(group.choices)]
            found += _property(estimator, aspect, f"block {b + 1}", blocks, block_ms)
    return found


def findings_of(insights: Sequence[Insight]) -> list[str]:
    """The strongest, as sentences; none that the error bars do not allow (Bonferroni over all insights)."""
    known = [i for i in insights if i.gain_se]
    if not known:
        return []
    needed = NormalDist().inv_cdf(1 - CHANCE / 2 / len(known))
    sure = [i for i in known if abs(i.gain) > needed * (i.gain_se or 0)]
    sure.sort(key=lambda i: -abs(i.gain))
    return [_sentence(i, _stands_out(i, known, needed)) for i in sure[:FINDINGS]]


def _depth(estimator: BilinearEstimator, s: int, block_ms: Ragged | None) -> list[Insight]:
    depths, worth = estimator.space.decisions.groups[s].depths, estimator.depth[s]
    variances = None if estimator.errors is None else _uncentred(estimator.errors.depth[s])
    found = []
    for i in range(1, len(depths)):
        fewer, more = depths[i - 1], depths[i]
        cost = None if block_ms is None else sum(float(np.mean(block_ms[s][b])) for b in range(fewer, more))
        se = None if variances is None else float(variances[i] + variances[i - 1]) ** 0.5
        change = f"{fewer} → {more}"
        found.append(Insight("depth", change, f"stage {s + 1}", worth[i] - worth[i - 1], se, cost))
    return found


def _property(
    estimator: BilinearEstimator,
    aspect: str,
    place: str,
    blocks: Sequence[tuple[int, int]],
    block_ms: Ragged | None,
) -> list[Insight]:
    """Consecutive levels of a property, averaged over the blocks whose stage has both."""
    decisions = estimator.space.decisions
    levels = sorted({level for s, b in blocks for level in _levels(decisions, s, b, aspect) if level is not None})
    found = []
    for low, high in itertools.pairwise(levels):
        gains, variances, costs = [], [], []
        for s, b in blocks:
            weights = _comparison(_levels(decisions, s, b, aspect), low, high)
            if weights is None:
                continue
            gains.append(float(weights @ np.array(estimator.block[s][b])))
            if estimator.errors is not None:
                variances.append(float(weights**2 @ _uncentred(estimator.errors.block[s][b])))
            if block_ms is not None:
                costs.append(float(weights @ np.array(block_ms[s][b])))
        if gains:
            se = sum(variances) ** 0.5 / len(gains) if variances else None
            cost = float(np.mean(costs)) if costs else None
            found.append(Insight(aspect, _change(aspect, low, high), place, float(np.mean(gains)), se, cost))
    return found


def _comparison(levels: Sequence[float | None], low: float, high: float) -> np.ndarray | None:
    """Weights that give the mean over options of the high level minus that of the low one."""
    above, below = (np.array([level == wanted for level in levels]) for wanted in (high, low))
    return above / above.sum() - below / below.sum() if above.any() and below.any() else None


def _levels(decisions: Decisions, s: int, b: int, aspect: str) -> list[float | None]:
    """Of every option of a block; None where it has no such factor."""
    return [dict(option.factors).get(aspect) for option in decisions.groups[s].choices[b].options]


def _uncentred(errors: Sequence[float]) -> np.ndarray:
    """Variances of n means whose deviations from their own mean have these errors.

    Contributions of a row add up to zero, so they vary together; the means behind them vary independently, and a
    comparison within the row is one of those means. A deviation has (n - 1) / n of a mean's variance.
    """
    n = len(errors)
    return np.array(errors) ** 2 * (n / (n - 1) if n > 1 else 1.0)


def _change(aspect: str, low: float, high: float) -> str:
    if aspect == "se" and not low:
        return f"none → {high:g}"
    return f"{low:g} → {high:g}"


def _stands_out(insight: Insight, others: Sequence[Insight], needed: float) -> bool:
    """Is it surely the largest of the same change in places of the same kind?"""
    kind = insight.place.split()[0]
    rivals = [
        o
        for o in others
        if o is not insight and (o.aspect, o.change, o.place.split()[0]) == (insight.aspect, insight.change, kind)
    ]
    return bool(rivals) and all(
        insight.gain - o.gain > needed * ((insight.gain_se or 0) ** 2 + (o.gain_se or 0) ** 2) ** 0.5 for o in rivals
    )


def _sentence(insight: Insight, stands_out: bool) -> str:
    low, high = insight.change.split(" → ")
    what = {
        "depth": f"{high} blocks instead of {low}",
        "expansion": f"expansion {high} instead of {low}",
        "kernel": f"a {high}x{high} kernel instead of {low}x{low}",
        "se": "squeeze-and-excitation" + ("" if low == "none" else f" {high} instead of {low}"),
    }.get(insight.aspect, f"{insight.aspect} {high} instead of {low}")
    ending = "" if insight.aspect == "depth" and high != "1" else "s"  # blocks pay, a kernel pays
    verb = (f"pay{ending} most" if stands_out else f"pay{ending}") if insight.gain > 0 else f"harm{ending}"
    points = f"{100 * insight.gain:+.2f} ± {100 * (insight.gain_se or 0):.2f} points"
    cost = ""
    if insight.cost_ms is not None:
        cost = f" for {insight.cost_ms:.3g} ms" if insight.cost_ms > 0 else " at no latency"
    text = f"{what} {verb} in {insight.place}: {points}{cost}"
    return text[0].upper() + text[1:]


def insights_file(estimator: BilinearEstimator, insights: Sequence[Insight], device: str | None = None) -> InsightsFile:
    validation = estimator.validation
    return InsightsFile(
        space=estimator.space.name,
        device=device,
        insights=[InsightRecord(**vars(i), gain_per_ms=i.gain_per_ms) for i in insights],
        findings=findings_of(insights),
        validation=validation.model_dump() if validation else None,
    )
