"""Why this network and not that one: the decisions in which they differ, each with its worth in accuracy and latency.

What a decision is worth depends on those that were changed before it, wherever accuracy saturates. So decisions are
changed one after the other in many orders, and the part of each is the mean over orders of what it added when its turn
came (its Shapley value). The parts then add up to the whole difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.comparisons import kind_change, level_name
from deploynas.accuracy.differences import Difference, difference, differences
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.space import Architecture, Option
from deploynas.space.coefficients import Priced
from deploynas.space.structure import INPUT_SIZE

ORDERS = 100  # where there are too many to take all


@dataclass(frozen=True)
class PartOfDifference:
    """One decision, taken as the other network has it."""

    place: str  # "stage 2" for its depth, "stage2/block1"
    what: str  # "depth 2 → 3", "kernel 3 → 5, se none → 0.25"
    accuracy: Difference
    latency_ms: float | None  # None without a table


@dataclass(frozen=True)
class NetworkComparison:
    """From `before` to `after`; parts that matter most come first, and add up to the whole."""

    after: Architecture
    before: Architecture
    accuracy: Difference
    latency_ms: float | None
    parts: tuple[PartOfDifference, ...]


@dataclass(frozen=True)
class _Step:
    """A decision that can be taken by itself, whichever others have been: columns of a row, copied from the other."""

    place: str
    what: str
    columns: tuple[int, ...]


def compare_networks(
    estimator: StoredEstimator, after: Architecture, before: Architecture, table: Priced | None = None
) -> NetworkComparison:
    steps = list(_steps(after, before))
    cost = table.cost() if table else None
    start, end = estimator.space.rows([before, after])
    rows, weights = _orders(steps, start, end)
    worth = differences(estimator, rows, weights)
    networks = estimator.space.architectures(rows)
    slower = weights @ np.array([cost.total(network) for network in networks]) if cost else None
    parts = [
        PartOfDifference(step.place, step.what, own, None if slower is None else float(slower[i]))
        for i, (step, own) in enumerate(zip(steps, worth, strict=True))
    ]
    return NetworkComparison(
        after,
        before,
        difference(estimator, after, before),
        cost.total(after) - cost.total(before) if cost else None,
        tuple(sorted(parts, key=lambda part: -abs(part.accuracy.accuracy))),
    )


def _steps(after: Architecture, before: Architecture) -> Iterator[_Step]:
    """Blocks that one network lacks come and go with the depth of their stage."""
    space, decisions = after.space, after.space.decisions
    for s, (own, other) in enumerate(zip(after.stages, before.stages, strict=True)):
        shared = min(len(own), len(other))
        if len(own) != len(other):
            # where `after` is the shallower one its row has nothing there, and nothing takes part
            added = tuple(decisions.column(s, b) for b in range(shared, len(own)))
            yield _Step(decisions.groups[s].name, f"depth {len(other)} → {len(own)}", (s, *added))
        for b in range(shared):
            if own[b] != other[b]:
                choice = decisions.groups[s].choices[b]
                changed = _changed(choice.options[other[b]], choice.options[own[b]])
                yield _Step(choice.name, changed, (decisions.column(s, b),))
    if after.size_index != before.size_index:
        sizes = [space.sizes[network.size_index] for network in (before, after)]
        yield _Step("input", f"{INPUT_SIZE} {sizes[0]} → {sizes[1]}", (decisions.columns - 1,))


def _orders(steps: Sequence[_Step], start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The networks on the ways, as rows, and for every step the weights by which they add up to its part."""
    n = len(steps)
    if math.factorial(n) <= ORDERS:
        orders = [list(order) for order in itertools.permutations(range(n))]
    else:
        rng = np.random.default_rng(0)
        drawn = [rng.permutation(n).tolist() for _ in range(ORDERS // 2)]
        orders = [order for one in drawn for order in (one, one[::-1])]  # early in one is late in the other
    rows = np.zeros((len(orders), n + 1, len(start)), dtype=start.dtype)
    weights = np.zeros((n, len(orders), n + 1))
    for i, order in enumerate(orders):
        row = start.copy()
        rows[i, 0] = row
        for position, which in enumerate(order):
            columns = list(steps[which].columns)
            row[columns] = end[columns]
            rows[i, position + 1] = row
            weights[which, i, position] -= 1 / len(orders)
            weights[which, i, position + 1] += 1 / len(orders)
    return rows.reshape(-1, len(start)), weights.reshape(n, len(orders) * (n + 1))


def _changed(before: Option, after: Option) -> str:
    """In words: the factors that differ."""
    old, new = dict(before.factors), dict(after.factors)
    words = [kind_change(before, after)] if before.kind != after.kind else []
    for aspect in dict.fromkeys([*old, *new]):
        if old.get(aspect) != new.get(aspect):
            low, high = (level_name(aspect, own[aspect]) if aspect in own else "none" for own in (old, new))
            words.append(f"{aspect} {low} → {high}")
    return ", ".join(words)
