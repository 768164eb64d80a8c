"""Every optimal network when accuracy is an increasing function of several sums , exact.

    accuracy = link(u_1, ..., u_r), every u_i a sum over blocks and depths as in eq. 3, the link increasing in each

Prefixes of a network are compared by (cost, u_1, ..., u_r): one that costs no less and has no larger u_i than
another can never lead to a better network, whatever follows and whatever the link. The lists of prefixes that
remain are carried from block to block, as in `frontier`, and the link is asked once, at the end. With one index
they are exactly the lists of `frontier`. With two they are longer, and `completion_bounds` shortens them.

Exact in floating point: every sum is made in network order (see `problem`), so rounding keeps the order of two
prefixes; and a link that keeps the order too (`space.link.Link` does, by the operations it is made of) gives a
network that was dropped no more than the one that dominates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from deploynas.errors import InputError
from deploynas.search.completion_bounds import CompletionBounds, KnownNetworks, frontier_rivals, k_best_rivals
from deploynas.search.dominance import undominated
from deploynas.search.prefixes import Admission, Budget, IndexedProblem, Prefixes, walk
from deploynas.space.decisions import Choices


@dataclass(frozen=True)
class IndexedNetworks:
    """Networks with their costs (fixed part included), indices and accuracies; choices are read on demand."""

    cost: np.ndarray
    values: np.ndarray  # (indices, networks)
    accuracy: np.ndarray
    prefixes: Prefixes
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    def choices(self, i: int) -> Choices:
        return self.prefixes.choices(int(self.positions[i]))


def indexed_frontier(problem: IndexedProblem) -> IndexedNetworks:
    """Every network that no other beats in both accuracy and cost, fastest first; empty if nothing fits."""
    admission = _admission(problem, frontier_rivals)
    networks = _networks(problem, walk(problem, undominated, admission))
    best = undominated(networks.cost, networks.accuracy[None])
    return _select(networks, best)


def indexed_k_best(problem: IndexedProblem, count: int) -> IndexedNetworks:
    """The `count` best networks within the budget, best first, then cheapest first; fewer if there are fewer."""
    if count < 1:
        raise InputError(f"at least one network must be asked for, got {count}")
    admission = _admission(problem, partial(k_best_rivals, count))

    def dominance(cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return undominated(cost, values, count)

    networks = _networks(problem, walk(problem, dominance, admission))
    return _select(networks, np.lexsort((networks.cost, -networks.accuracy))[:count])


def _admission(problem: IndexedProblem, find_rivals: Callable[[IndexedProblem], KnownNetworks]) -> Admission:
    """Bounds are for two indices: with one the lists are short anyway, with more only the budget is looked at."""
    return CompletionBounds(problem, find_rivals) if len(problem.base) == 2 else Budget(problem)


def _networks(problem: IndexedProblem, prefixes: Prefixes) -> IndexedNetworks:
    """The prefixes after the last stage that keep the budget."""
    total = problem.fixed + prefixes.cost  # the fixed part last, as `LatencyTable.predict` does
    positions = np.flatnonzero(total <= problem.budget)
    values = prefixes.values[:, positions]
    accuracy = problem.link(values.T) if len(positions) else np.empty(0)
    return IndexedNetworks(total[positions], values, accuracy, prefixes, positions)


def _select(networks: IndexedNetworks, chosen: np.ndarray) -> IndexedNetworks:
    return replace(
        networks,
        cost=networks.cost[chosen],
        values=networks.values[:, chosen],
        accuracy=networks.accuracy[chosen],
        positions=networks.positions[chosen],
    )
