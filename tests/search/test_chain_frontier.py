"""Chains of choices against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploynas.errors import InputError
from deploynas.search.chain_frontier import (
    ChainLink,
    ChainPoint,
    chain_frontier,
    cheapest_within,
    least_loss_within,
)

# few values, so that there are ties; negative ones, since 8 bits may be more accurate, and may be faster
numbers = st.integers(-3, 6).map(float)


@st.composite
def chains(draw: st.DrawFn) -> list[ChainLink]:
    links, before = [], 1
    for _ in range(draw(st.integers(1, 6))):
        options = draw(st.integers(1, 3))
        row = st.tuples(*[numbers] * options)
        entering = draw(st.tuples(*[row] * before))
        links.append(ChainLink(draw(row), draw(row), entering))
        before = options
    return links


def every_assignment(links: list[ChainLink]) -> list[ChainPoint]:
    found = []
    for options in itertools.product(*(range(len(link.cost)) for link in links)):
        before, cost, loss = 0, 0.0, 0.0
        for link, option in zip(links, options, strict=True):
            cost += link.cost[option] + link.entering[before][option]
            loss += link.loss[option]
            before = option
        found.append(ChainPoint(options, cost, loss))
    return found


@settings(max_examples=300, deadline=None)
@given(chains(), st.integers(-10, 30), st.integers(-10, 30))
def test_no_assignment_is_better(links: list[ChainLink], most_cost: int, most_loss: int) -> None:
    every, frontier = every_assignment(links), chain_frontier(links)
    for point in frontier:
        assert point in every
        assert not [o for o in every if o.cost <= point.cost and o.loss < point.loss]
        assert not [o for o in every if o.cost < point.cost and o.loss <= point.loss]
    within = [one.loss for one in every if one.cost <= most_cost]
    found = least_loss_within(frontier, most_cost)
    assert (found.loss if found else None) == min(within, default=None)
    keeping = [one.cost for one in every if one.loss <= most_loss]
    kept = cheapest_within(frontier, most_loss)
    assert (kept.cost if kept else None) == min(keeping, default=None)


def test_neighbours_that_differ_may_cost_more_than_they_save() -> None:
    """One block saves less alone than both conversions take; two neighbours share them."""
    alone = ((0.0, 2.0), (2.0, 0.0))
    first = ChainLink((5.0, 50.0), (0.0, 9.0), alone)
    inner = ChainLink((5.0, 2.5), (0.0, 1.0), alone)
    frontier = chain_frontier([first, inner, first])
    assert [point.options for point in frontier] == [(0, 0, 0)]
    frontier = chain_frontier([first, inner, inner, first])
    assert [(point.options, point.cost) for point in frontier] == [((0, 1, 1, 0), 19.0), ((0, 0, 0, 0), 20.0)]


def test_twenty_blocks(rng: np.random.Generator) -> None:
    """As large as networks are: a million assignments, all of them asked."""
    n = 20
    cost, loss, border = rng.uniform(-1, 0.2, n), rng.uniform(0, 1, n), rng.uniform(0, 0.3, n)
    links = [
        ChainLink((0.0, float(c)), (0.0, float(p)), ((0.0, float(e)), (float(e), 0.0)))
        for c, p, e in zip(cost, loss, border, strict=True)
    ]
    bits = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    changes = np.abs(np.diff(bits, axis=1, prepend=0))
    costs, losses = bits @ cost + changes @ border, bits @ loss
    frontier = chain_frontier(links)
    for budget in np.linspace(costs.min(), 0, 20):
        found = least_loss_within(frontier, budget + 1e-9)
        assert found is not None and found.loss == pytest.approx(losses[costs <= budget + 1e-9].min())


def test_a_chain_of_nothing_is_refused() -> None:
    with pytest.raises(InputError):
        chain_frontier([])
