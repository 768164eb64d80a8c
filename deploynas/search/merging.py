"""Lists of prefixes of networks, compared by cost and value: extended block by block, merged at the end of a stage.

A prefix that costs no less and is worth no more than another can never lead to a better network, whatever follows,
and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.search.trail import EMPTY, Trail
from deploynas.space.decisions import Choices


@dataclass(frozen=True)
class Layer:
    """Non-dominated prefixes, cheapest first, each with where it came from."""

    cost: np.ndarray
    value: np.ndarray
    trail: Trail = EMPTY

    def choices(self, i: int) -> Choices:
        """Of entry i, from the empty network on."""
        return self.trail.choices(i)


def extend(
    layer: Layer,
    cost: np.ndarray,
    value: np.ndarray,
    configs: np.ndarray,
    admit: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    keep: int = 1,
) -> Layer:
    """Every prefix with every configuration of the next block, less what `keep` others dominate.

    Only those are looked at whose costs and values `admit` admits.
    """
    configs = np.sort(configs[undominated(cost[configs], value[configs], keep)])
    costs = np.add.outer(cost[configs], layer.cost).ravel()
    values = np.add.outer(value[configs], layer.value).ravel()
    if admit is None:
        kept = undominated(costs, values, keep)
    else:
        admitted = np.flatnonzero(admit(costs, values))
        kept = admitted[undominated(costs[admitted], values[admitted], keep)]
    which, index = np.divmod(kept, max(1, len(layer.cost)))
    trail = Trail.extended(layer.trail, len(layer.cost), index, configs[which])
    return Layer(costs[kept], values[kept], trail)


def end_stage(reached: Sequence[tuple[Layer, float]], keep: int = 1) -> Layer:
    """One list from those of a stage's depths, each with the bonus of its depth."""
    layers = [layer for layer, _ in reached]
    costs = np.concatenate([layer.cost for layer in layers])
    values = np.concatenate([layer.value + bonus for layer, bonus in reached])
    kept = undominated(costs, values, keep)
    trail = Trail.merged([(layer.trail, len(layer.cost)) for layer in layers], kept)
    return Layer(costs[kept], values[kept], trail)


def undominated(cost: np.ndarray, value: np.ndarray, keep: int = 1) -> np.ndarray:
    """Positions of the entries that fewer than `keep` others dominate, cheapest first.

    Of entries equal in both the first is kept, so that ties are broken the same way every time. For keep > 1
    one frontier after the other is peeled off, which may leave a little more than asked and never less.
    """
    order = np.argsort(cost, kind="stable")
    if keep == 1:
        kept = order[_rises(value[order])]
        costs = cost[kept]
        return kept[np.append(costs[1:] > costs[:-1], np.ones(len(costs[:1]), dtype=bool))]
    left, peeled = np.arange(len(order)), []
    for _ in range(keep):
        rises = _rises(value[order[left]])
        peeled.append(left[rises])
        left = left[~rises]
    return order[np.sort(np.concatenate(peeled))]


def _rises(value: np.ndarray) -> np.ndarray:
    """Where a sequence exceeds all that came before."""
    rises = np.ones(len(value), dtype=bool)
    rises[1:] = value[1:] > np.maximum.accumulate(value)[:-1]
    return rises
