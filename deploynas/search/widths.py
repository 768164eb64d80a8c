"""Which width every block gets within a latency budget: by a threshold on all channels, or exactly, by their worth.

Both know latency only by a measured table, whose steps over the widths of a block are what they are: a staircase that
need not fall with every channel, and may even rise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from deploynas.errors import GateError, InputError
from deploynas.search.problem import Problem, table_cost
from deploynas.search.solver import load_solver
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Priced, SeparableObjective
from deploynas.space.structure import of_stages
from deploynas.space.widths import DIVISOR, widths_of


def by_threshold(space: Space, importance: Sequence[np.ndarray], table: Priced, budget_ms: float) -> Architecture:
    """Channels of all blocks in one ranking; as many of the first as the budget allows, in widths that there are."""
    offered, ranked, gated = _gated(space, importance)
    cost, cheapest = table_cost(space, table, budget_ms), np.inf
    for options in thresholds(ranked, [offered[s] for s in gated]):
        choices = [[0] for _ in offered]
        for s, option in zip(gated, options, strict=True):
            choices[s] = [option]
        found = space.architecture(choices)
        if cost.allows(found):
            return found
        cheapest = min(cheapest, cost.total(found))
    raise GateError(
        f"no widths are within {budget_ms:.4g} ms: the narrowest blocks take {cheapest:.4g} ms by the table",
        hint="a larger budget; the rest of the network cannot be pruned by its widths",
    )


def nearest_widths(space: Space, channels: Sequence[int]) -> Architecture:
    """The network of the offered widths nearest to these numbers of channels."""
    offered = widths_of(of_stages(space))
    gated = [s for s, widths in enumerate(offered) if widths[-1]]
    choices = [[0] for _ in offered]
    for s, option in zip(gated, nearest([offered[s] for s in gated], channels), strict=True):
        choices[s] = [option]
    return space.architecture(choices)


def nearest(offered: Sequence[Sequence[int]], channels: Sequence[int]) -> list[int]:
    """Which offered width of every layer is nearest; the narrower of two."""
    return [int(np.abs(np.array(widths) - count).argmin()) for widths, count in zip(offered, channels, strict=True)]


def dimensions_within(importance: Sequence[np.ndarray], costs: Sequence[float], most: float) -> list[int]:
    """The same where a layer may have any multiple of 8 of its dimensions, each at a cost of its own."""
    offered = [tuple(dict.fromkeys([*range(DIVISOR, len(own), DIVISOR), len(own)])) for own in importance]
    for options in thresholds(importance, offered):
        widths = [own[option] for own, option in zip(offered, options, strict=True)]
        if sum(cost * width for cost, width in zip(costs, widths, strict=True)) <= most:
            return widths
    raise GateError("no dimensions are within the budget: too little of the network is in them", hint="a larger budget")


def thresholds(importance: Sequence[np.ndarray], offered: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Which offered width every layer has, while the channels of all layers go one by one, the least important first.

    A layer gets the width nearest to the number of channels that it has left.
    """
    order = np.argsort(-np.concatenate(importance), kind="stable")
    layer_of = np.repeat(np.arange(len(importance)), [len(own) for own in importance])[order]
    left, previous = [len(own) for own in importance], list[int]()
    for last in range(len(order), -1, -1):
        options = nearest(offered, left)
        if options != previous:
            yield options
            previous = options
        if last:
            left[layer_of[last - 1]] -= 1


def best_widths(space: Space, importance: Sequence[np.ndarray], table: Priced, budget_ms: float) -> Architecture:
    """The most importance within the budget, proven; a width is worth the sum of its block's best channels."""
    offered, ranked, gated = _gated(space, importance)
    worth = [((0.0,) * len(widths),) for widths in offered]
    for s, own in zip(gated, ranked, strict=True):
        sums = np.concatenate([[0.0], np.cumsum(np.sort(own)[::-1])])
        worth[s] = (tuple(float(sums[width]) for width in offered[s]),)
    nothing = tuple((0.0,) for _ in offered)
    objective = SeparableObjective.from_contributions(space, 0.0, nothing, tuple(worth), "ordinal")
    problem = Problem(space, objective, (table_cost(space, table, budget_ms),))
    return load_solver("exact").solve(problem)[0].architecture


def _gated(
    space: Space, importance: Sequence[np.ndarray]
) -> tuple[tuple[tuple[int, ...], ...], list[np.ndarray], list[int]]:
    """Offered widths of every block, the channels' importance, and which blocks have a width to choose."""
    offered = widths_of(of_stages(space))
    gated = [s for s, widths in enumerate(offered) if widths[-1]]
    ranked = [np.asarray(own, float) for own in importance]
    if [len(own) for own in ranked] != [offered[s][-1] for s in gated]:
        raise InputError("importance needs a number for every expansion channel of the network")
    return offered, ranked, gated


def ms_per_channel(space: Space, block_ms: Sequence) -> list[float]:
    """What a channel of each block takes, from the narrowest to the widest that was measured."""
    rates = []
    for widths, rows in zip(widths_of(of_stages(space)), block_ms, strict=True):
        if widths[-1]:
            steps = widths[-1] - widths[0]
            rates.append(max(0.0, rows[0][-1] - rows[0][0]) / steps if steps else 0.0)
    return rates
