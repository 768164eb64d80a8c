"""What may follow a prefix of a network: its cost and what it adds to every index, computed backwards from the end.

Of all that may follow at a position, only what is not dominated counts. Long lists are thinned in their favour:
neighbours become one that costs as little as the cheapest of them and adds as much to each index as the best of them
for it. So no prefix can do better than with what is listed here, but it may do worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deploynas.search.dominance import undominated
from deploynas.search.prefixes import IndexedProblem, IndexedStage

LONGEST = 2_048  # a power of two; lists are carried on at this length


@dataclass(frozen=True)
class Endings:
    """Ends of networks, from some position on: what they cost and what they add to every index."""

    cost: np.ndarray
    values: np.ndarray  # (indices, endings)

    def __len__(self) -> int:
        return len(self.cost)

    def thinned(self, most: int) -> Endings:
        """At most so many (a power of two)."""
        return self if len(self) <= most else self.nested(most)

    def nested(self, groups: int) -> Endings:
        """So many groups of neighbours (a power of two): those of twice as many are the halves of these, in order."""
        order = self._halved.reshape(groups, -1)
        return Endings(self.cost[order].min(axis=1), self.values[:, order].max(axis=2))

    @property
    def leaves(self) -> int:
        """Into so many groups the endings can be divided at most."""
        return 1 << (len(self) - 1).bit_length()

    @cached_property
    def _halved(self) -> np.ndarray:
        """All endings, some twice, cut in half where they are widest, and so is every half until one is left."""
        points = np.vstack([self.cost, self.values])
        points = points / np.maximum(np.ptp(points, axis=1, keepdims=True), 1e-300)
        groups = np.arange(self.leaves)[None] % len(self)
        while groups.shape[1] > 1:
            widest = np.ptp(points[:, groups], axis=2).argmax(axis=0)
            order = np.argsort(points[widest[:, None], groups], axis=1, kind="stable")
            groups = np.take_along_axis(groups, order, axis=1).reshape(2 * len(groups), -1)
        return groups


class Following:
    """What may follow at every position of a network, computed as far back as it is asked for."""

    def __init__(self, problem: IndexedProblem) -> None:
        self.stages = problem.stages
        nothing = Endings(np.zeros(1), np.zeros((len(problem.base), 1)))
        self._after_stage = {len(self.stages) - 1: nothing}
        self._after_block: dict[int, list[Endings]] = {}

    def after_stage(self, s: int) -> Endings:
        """Once the depth of stage s is decided."""
        if s not in self._after_stage:
            self._after_stage[s] = _with_block(self.stages[s + 1], 0, self.after_block(s + 1, 0))
        return self._after_stage[s]

    def after_block(self, s: int, b: int) -> Endings:
        """Once block b of stage s is decided: the stage may end there, or more blocks follow."""
        if s not in self._after_block:
            self._after_block[s] = self._blocks(s)
        return self._after_block[s][b]

    def _blocks(self, s: int) -> list[Endings]:
        stage, following, found = self.stages[s], self.after_stage(s), list[Endings]()
        for b in reversed(range(stage.max_depth)):
            options = [_with_block(stage, b + 1, found[0])] if found else []
            if b + 1 in stage.bonus:
                options.append(Endings(following.cost, following.values + stage.bonus[b + 1][:, None]))
            found.insert(0, _best(options))
        return found


def _with_block(stage: IndexedStage, b: int, following: Endings) -> Endings:
    configs = stage.configs(b)
    cost = np.add.outer(stage.cost[b][configs], following.cost).ravel()
    values = stage.values[b][:, configs, None] + following.values[:, None, :]
    return _best([Endings(cost, values.reshape(len(values), -1))])


def _best(options: Sequence[Endings]) -> Endings:
    cost = np.concatenate([option.cost for option in options])
    values = np.concatenate([option.values for option in options], axis=1)
    kept = undominated(cost, values)
    return Endings(cost[kept], values[:, kept]).thinned(LONGEST)
