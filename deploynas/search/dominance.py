"""Which prefixes can be dropped when a prefix has a cost and several values: dominance in all of them at once.

An entry dominates another if it costs no more and no value of it is less; of entries equal in everything the first
dominates the others. With one value this is a sweep by cost with a running maximum. With two, the running maximum
becomes a staircase: of the cheaper entries those that no cheaper one beats in both values, by rising first value
and so by falling second, where one binary search tells whether anything beats a newcomer.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

STRETCH = 1024  # entries that are compared with what came before them, at once
CHUNK = 192  # of those left, entries that are compared with each other one by one


def undominated(cost: np.ndarray, values: np.ndarray, keep: int = 1) -> np.ndarray:
    """Positions of the entries that fewer than `keep` others dominate, cheapest first; `values` is (indices, entries).

    For keep > 1 one set of undominated entries after the other is peeled off: whatever is left after `keep` of them
    is dominated by one entry of each. That may leave a little more than asked and never less.
    """
    order = _order(cost, values)
    left, peeled = np.arange(len(order)), []
    for _ in range(keep):
        if not len(left):
            break
        best = _sweep(values[:, order[left]])
        peeled.append(left[best])
        left = left[~best]
    return order[np.sort(np.concatenate(peeled))] if peeled else order


def _order(cost: np.ndarray, values: np.ndarray) -> np.ndarray:
    """By cost, then largest values first, then as given: whatever dominates an entry comes before it."""
    order = np.argsort(cost, kind="stable")
    same = np.diff(cost[order]) == 0
    if same.any():
        ties = np.flatnonzero(np.append(same, False) | np.append(False, same))
        tied = order[ties]
        order[ties] = tied[np.lexsort((*(-row[tied] for row in values[::-1]), cost[tied]))]
    return order


def _sweep(values: np.ndarray) -> np.ndarray:
    """Whether no earlier entry has values that are all at least as large; entries are in the order of `undominated`."""
    if len(values) == 1:
        return _rises(values[0])
    best = np.zeros(values.shape[1], dtype=bool)
    window = _Staircase() if len(values) == 2 else _Pile(len(values))
    for start in range(0, values.shape[1], STRETCH):
        left = start + window.unbeaten(values[:, start : start + STRETCH])
        while len(left):
            chunk, left = left[:CHUNK], left[CHUNK:]
            chunk = chunk[~_beaten_inside(values[:, chunk])]
            best[chunk] = True
            window.add(values[:, chunk])
            left = left[window.unbeaten(values[:, left])]
    return best


def _rises(values: np.ndarray) -> np.ndarray:
    before = np.maximum.accumulate(np.concatenate([[-np.inf], values]))[:-1]
    return np.greater(values, before)


def _beaten_inside(values: np.ndarray) -> np.ndarray:
    """Whether an earlier entry of the same chunk has values that are all at least as large."""
    entries = values.shape[1]
    beats = np.greater_equal(values[0][None, :], values[0][:, None])  # [later, earlier]
    for row in values[1:]:
        beats &= row[None, :] >= row[:, None]
    beats &= _earlier(CHUNK)[:entries, :entries]
    return np.asarray(beats.any(axis=1))


@lru_cache(maxsize=1)
def _earlier(entries: int) -> np.ndarray:
    return np.tri(entries, k=-1, dtype=bool)


class _Staircase:
    """The entries so far that no other beats in two values: the first rises, the second falls."""

    def __init__(self) -> None:
        self.first, self.second = np.array([np.inf]), np.array([-np.inf])  # the end that every search finds at last

    def unbeaten(self, values: np.ndarray) -> np.ndarray:
        # of the steps whose first value is no less, the leftmost has the largest second one
        step = np.searchsorted(self.first, values[0], side="left")
        return np.flatnonzero(self.second[step] < values[1])

    def add(self, values: np.ndarray) -> None:
        first, second = np.append(self.first, values[0]), np.append(self.second, values[1])
        order = np.lexsort((-second, -first))
        steps = order[_rises_or_ends(second[order])][::-1]
        self.first, self.second = first[steps], second[steps]


def _rises_or_ends(values: np.ndarray) -> np.ndarray:
    rises = _rises(values)
    rises[0] = True  # the end of the staircase, at (inf, -inf)
    return rises


class _Pile:
    """The entries so far that no other beats in three or more values, compared with one by one."""

    def __init__(self, indices: int) -> None:
        self.values = np.empty((indices, 0))

    def unbeaten(self, values: np.ndarray) -> np.ndarray:
        beaten = np.zeros(values.shape[1], dtype=bool)
        for start in range(0, self.values.shape[1], CHUNK):
            left = np.flatnonzero(~beaten)
            part = self.values[:, start : start + CHUNK]
            beaten[left] = (part[:, :, None] >= values[:, None, left]).all(axis=0).any(axis=0)
        return np.flatnonzero(~beaten)

    def add(self, values: np.ndarray) -> None:
        self.values = np.concatenate([self.values, values], axis=1)
