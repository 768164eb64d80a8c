"""Which design choices are compared with each other, and what was measured about each comparison.

The comparisons are those of the paper's Figure 5 and IQNAS appendix J: a deeper stage against the next shallower one,
and means over configurations with a property against those without, over the blocks of a stage or over the stages of a
block. Each is one linear combination of contributions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from deploynas.space import Choice, Decisions, Option, Ragged

OTHERS = "others → this"  # of a kind of option, such as the operation of an edge


@dataclass(frozen=True)
class ChoiceComparison:
    """One level of an aspect against another, in one place."""

    aspect: str  # `depth`, or a factor of the options: `expansion`, `kernel`, `se`
    change: str  # "3 → 5"
    place: str  # "stage 2", "block 1"
    decisions: Decisions
    terms: tuple[tuple[int, np.ndarray], ...]  # columns, and the weights of their options; the mean over them counts
    added: tuple[tuple[int, int], ...] = ()  # of depth: the blocks (stage, block) that the deeper stage has more

    @property
    def key(self) -> tuple[str, str, str]:
        return self.aspect, self.change, self.place

    @cached_property
    def weights(self) -> np.ndarray:
        """Of a vector of contributions."""
        vector = np.zeros(len(self.decisions))
        for column, weights in self.terms:
            vector[self.decisions.slices[column]] += weights / len(self.terms)
        return vector

    def cost_ms(self, block_ms: Ragged) -> float:
        """The same means over a latency table."""
        if self.aspect == "depth":
            return sum(float(np.mean(block_ms[s][b])) for s, b in self.added)
        places, groups = self.decisions.places, len(self.decisions.groups)
        costs = []
        for column, weights in self.terms:
            s, b = places[column - groups]
            costs.append(float(weights @ np.array(block_ms[s][b])))
        return float(np.mean(costs))


class MeasuredComparison(BaseModel):
    """What was measured about a comparison, unbiased. Accuracy is a fraction."""

    model_config = ConfigDict(frozen=True)

    aspect: str
    change: str
    place: str
    gain: float
    gain_se: float = Field(ge=0)
    degrees: int = Field(ge=1)  # of freedom of the standard error: images or networks, less what was fitted

    @property
    def key(self) -> tuple[str, str, str]:
        return self.aspect, self.change, self.place


def comparisons_of(decisions: Decisions) -> list[ChoiceComparison]:
    """All of them: depths, then every factor by stage, then every factor by block."""
    groups = decisions.groups
    found = [comparison for g in range(len(groups)) for comparison in _depths(decisions, g)]
    of_options = [own for group in groups for choice in group.choices for own in factors_of(choice)]
    aspects = list(dict.fromkeys(name for own in of_options for name in own))
    for aspect in aspects:
        for g, group in enumerate(groups):
            columns = [decisions.column(g, i) for i in range(len(group.choices))]
            found += _factor(decisions, aspect, group.name, columns)
    for aspect in aspects:
        if _decided_once(decisions, aspect):
            continue  # as the input size is: no matter of a first block
        for i in range(max(len(group.choices) for group in groups)):
            columns = [decisions.column(g, i) for g, group in enumerate(groups) if i < len(group.choices)]
            place = f"{decisions.choice_word} {i + 1}" if len(groups) > 1 else groups[0].choices[i].name
            found += _factor(decisions, aspect, place, columns)
    return found


def factors_of(choice: Choice) -> list[dict[str, float]]:
    """Of every option, the level of each factor; of options that differ by kind alone, whether it is of each kind."""
    if any(option.factors for option in choice.options):
        return [dict(option.factors) for option in choice.options]
    kinds = list(dict.fromkeys(option.kind for option in choice.options))
    return [{kind: float(option.kind == kind) for kind in kinds} for option in choice.options] if len(kinds) > 1 else []


def _decided_once(decisions: Decisions, aspect: str) -> bool:
    choices = [choice for group in decisions.groups for choice in group.choices]
    return sum(any(aspect in own for own in factors_of(choice)[:1]) for choice in choices) == 1


def measured(
    decisions: Decisions, values: np.ndarray, covariance: np.ndarray, degrees: int
) -> tuple[MeasuredComparison, ...]:
    """All comparisons, from unbiased contributions and the covariance of their errors."""
    found = []
    for comparison in comparisons_of(decisions):
        w = comparison.weights
        found.append(
            MeasuredComparison(
                aspect=comparison.aspect,
                change=comparison.change,
                place=comparison.place,
                gain=float(w @ values),
                gain_se=float(max(0.0, w @ covariance @ w)) ** 0.5,
                degrees=degrees,
            )
        )
    return tuple(found)


def _depths(decisions: Decisions, g: int) -> list[ChoiceComparison]:
    depths, found = decisions.groups[g].depths, []
    for i in range(1, len(depths)):
        weights = np.zeros(len(depths))
        weights[i - 1], weights[i] = -1, 1
        change, place = f"{depths[i - 1]} → {depths[i]}", decisions.groups[g].name
        added = tuple((g, b) for b in range(depths[i - 1], depths[i]))
        found.append(ChoiceComparison("depth", change, place, decisions, ((g, weights),), added))
    return found


def _factor(decisions: Decisions, aspect: str, place: str, columns: Sequence[int]) -> list[ChoiceComparison]:
    """Consecutive levels of a factor, averaged over the choices that have both."""
    levels_of = {column: _levels(decisions, column, aspect) for column in columns}
    levels = sorted({level for own in levels_of.values() for level in own if level is not None})
    found = []
    for low, high in itertools.pairwise(levels):
        weighted = [(column, _difference(own, low, high)) for column, own in levels_of.items()]
        terms = tuple((column, weights) for column, weights in weighted if weights is not None)
        if terms:
            change = f"{level_name(aspect, low)} → {high:g}" if _is_factor(decisions, aspect) else OTHERS
            found.append(ChoiceComparison(aspect, change, place, decisions, terms))
    return found


def _is_factor(decisions: Decisions, aspect: str) -> bool:
    """Or a kind of option."""
    options = (option for group in decisions.groups for choice in group.choices for option in choice.options)
    return any(aspect in dict(option.factors) for option in options)


def _levels(decisions: Decisions, column: int, aspect: str) -> list[float | None]:
    """Of every option of a choice; None where it has no such factor."""
    g, i = decisions.places[column - len(decisions.groups)]
    choice = decisions.groups[g].choices[i]
    return [own.get(aspect) for own in factors_of(choice)] or [None] * len(choice.options)


def _difference(levels: Sequence[float | None], low: float, high: float) -> np.ndarray | None:
    """Weights that give the mean over options of the high level minus that of the low one."""
    above, below = (np.array([level == wanted for level in levels]) for wanted in (high, low))
    return above / above.sum() - below / below.sum() if above.any() and below.any() else None


def kind_change(before: Option, after: Option) -> str:
    """In words."""
    change = f"{before.kind} → {after.kind}"
    return f"kind {change}" if before.factors or after.factors else change  # or all that there is to say


def level_name(aspect: str, level: float) -> str:
    return "none" if aspect == "se" and not level else f"{level:g}"
