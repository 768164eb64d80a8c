"""A chain of choices whose neighbours cost something together: every assignment that no other beats, exact.

Which blocks of a network run in 8 bits is such a chain: each block has a cost and a loss in each precision, and where
two neighbours differ, values are converted. Prefixes are compared as in `frontier.py`, but only with those that end in
the same option, since what comes next depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.errors import InputError
from deploynas.search.merging import Layer, end_stage, extend


@dataclass(frozen=True)
class ChainLink:
    """One choice: what each option costs and loses, and what it costs to come to it from each option before."""

    cost: tuple[float, ...]
    loss: tuple[float, ...]
    entering: tuple[tuple[float, ...], ...]  # [option before][option]; the first link comes from option 0


@dataclass(frozen=True)
class ChainPoint:
    options: tuple[int, ...]  # one for each link
    cost: float
    loss: float


def chain_frontier(links: Sequence[ChainLink]) -> list[ChainPoint]:
    """Cheapest first, and so the one that loses most."""
    if not links:
        raise InputError("a chain needs at least one choice")
    reached: list[Layer] = [Layer(np.zeros(1), np.zeros(1))]
    for link in links:
        reached = [_ending_in(option, link, reached) for option in range(len(link.cost))]
    whole = end_stage([(layer, 0.0) for layer in reached])
    points = []
    for i in range(len(whole.cost)):
        *chosen, _ = whole.choices(i)  # the last stage is the end itself
        options = tuple(option for (option,) in chosen)
        points.append(ChainPoint(options, float(whole.cost[i]), -float(whole.value[i])))
    return points


def _ending_in(option: int, link: ChainLink, reached: Sequence[Layer]) -> Layer:
    value, options = -np.asarray(link.loss), np.array([option])
    extended = [
        extend(layer, np.asarray(link.cost) + np.asarray(link.entering[before]), value, options)
        for before, layer in enumerate(reached)
    ]
    return end_stage([(layer, 0.0) for layer in extended])


def cheapest_within(frontier: Sequence[ChainPoint], loss: float) -> ChainPoint | None:
    return next((point for point in frontier if point.loss <= loss), None)


def least_loss_within(frontier: Sequence[ChainPoint], cost: float) -> ChainPoint | None:
    return next((point for point in reversed(frontier) if point.cost <= cost), None)
