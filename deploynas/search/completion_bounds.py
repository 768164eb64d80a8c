"""What a prefix of two indices can still reach, and so which prefixes can be dropped before they are complete.

Whatever may follow a prefix costs t more and adds x to the first index and y to the second; of all that may follow,
only what is not dominated counts, and that is computed backwards (long lists are thinned). A prefix (cost, u, v) is
worth keeping only if for some of it
    link(u + x, v + y) >= the accuracy of the best known network (rival) of cost at most cost + t.
Asked the other way round this is a least v for every (cost, u), which is tabulated once per position in the network
and then costs one look-up per prefix. Every rounding to a grid, and a slack far above rounding errors, is made in the
prefix's favour: the answer never depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from deploynas.search import merging
from deploynas.search.following import Endings, Following
from deploynas.search.prefixes import Budget, Increasing, IndexedProblem, Prefixes, walk

SLACK = 1e-9  # relative; a sum of a hundred terms is off by about 1e-14
FEW = 40_000  # prefixes that are not worth a table
PAIRS = 4_000_000  # of cells of prefixes and endings, if all were compared
SPLIT = 2  # groups of endings are halved so often at a time
COST_STEPS = 16_384  # of the table of rivals
U_LEVELS, V_LEVELS = 800, 200  # of the indices in the table of the link
GUESS = 0.05  # of a step between levels: how far below a straight line the link's own line is sought
RIVALS = 512


@dataclass(frozen=True)
class KnownNetworks:
    """Known networks that a prefix must be able to equal, cheapest first: cost without the fixed part, accuracy."""

    cost: np.ndarray
    accuracy: np.ndarray


def frontier_rivals(problem: IndexedProblem) -> KnownNetworks:
    """Networks near the frontier: what becomes part of it must equal whichever of them cost no more."""
    cost, values = _joined(best_by_sums(problem, weightings(problem, 1), 1))
    accuracy = problem.link(values.T)
    best = merging.undominated(cost, accuracy)
    best = best[np.unique(np.linspace(0, len(best) - 1, RIVALS).astype(int))] if len(best) else best
    return KnownNetworks(cost[best], accuracy[best])


def k_best_rivals(count: int, problem: IndexedProblem) -> KnownNetworks:
    """One of the `count` best networks must equal the least of `count` known ones, whatever it costs."""
    cost, values = _joined(best_by_sums(problem, weightings(problem, count), count))
    distinct = np.unique(np.vstack([cost, values]), axis=1)[1:]  # one network may have been found twice
    if distinct.shape[1] < count:
        return KnownNetworks(np.empty(0), np.empty(0))
    return KnownNetworks(np.zeros(1), np.sort(problem.link(distinct.T))[-count:][:1])


def weightings(problem: IndexedProblem, count: int) -> list[np.ndarray]:
    """Weights of the two indices: what the link itself weighs them by, here and there among good networks."""
    spread = np.maximum(
        sum((np.ptp(v, axis=1) for s in problem.stages for v in s.values if v.size), np.zeros(2)), 1e-300
    )
    equal = 1 / spread
    _, values = _joined(best_by_sums(problem, [equal], count))
    if not values.shape[1]:
        return [equal]
    here = problem.link(values.T)
    rise = [problem.link((values + 1e-3 * step[:, None]).T) - here for step in np.diag(spread)]
    angles = np.arctan2(np.maximum(rise[1], 0), np.maximum(rise[0], 0) + 1e-300)
    angles = np.clip(np.quantile(angles, (0.05, 0.5, 0.95)), 0.02, np.pi / 2 - 0.02)
    return [np.array([np.cos(a), np.sin(a)]) / spread for a in np.unique(angles)]


def best_by_sums(problem: IndexedProblem, weights: Sequence[np.ndarray], count: int) -> list[Prefixes]:
    """The networks that are best by each weighted sum of the indices."""

    def best_by(one: np.ndarray, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return merging.undominated(cost, one @ values, count)

    return [walk(problem, partial(best_by, one), Budget(problem)) for one in weights]


def _joined(found: Sequence[Prefixes]) -> tuple[np.ndarray, np.ndarray]:
    """Costs (without the fixed part) and indices."""
    return np.concatenate([f.cost for f in found]), np.concatenate([f.values for f in found], axis=1)


class CompletionBounds:
    """Admits the prefixes that may still become a network no worse than the rivals that cost no more.

    Nothing is computed before a list is long enough to be worth it.
    """

    def __init__(
        self, problem: IndexedProblem, find_rivals: Callable[[IndexedProblem], KnownNetworks], few: int | None = None
    ) -> None:
        self.problem, self.find_rivals = problem, find_rivals
        self.few = FEW if few is None else few
        self.following = Following(problem)

    def after_block(self, s: int, b: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        if len(cost) < self.few:
            return self.problem.fits(cost)
        return self.admits(self.following.after_block(s, b), cost, values)

    def after_stage(self, s: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        if len(cost) < self.few:
            return self.problem.fits(cost)
        return self.admits(self.following.after_stage(s), cost, values)

    @cached_property
    def _rivals(self) -> KnownNetworks:
        return self.find_rivals(self.problem)

    @cached_property
    def _needed(self) -> _Needed:
        return _Needed(self.problem, self._rivals)

    def admits(self, following: Endings, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Of prefixes that any of `following` may follow, cheapest first."""
        if not len(self._rivals.cost):
            return self.problem.fits(cost)
        if not len(cost) or not len(following):  # no network begins like this: what follows is forbidden
            return np.zeros(len(cost), dtype=bool)
        cells = _Cells.of(cost, values, PAIRS // following.leaves)
        return values[1] >= self._least_v(cells, following)[cells.of_prefix]

    def _least_v(self, cells: _Cells, following: Endings) -> np.ndarray:
        """[cell]: the second index that a prefix of the cell needs; infinite if none is enough.

        Not every ending is tried with every cell: first large groups of endings, then the parts of those that may be
        enough for a prefix of the cell.
        """
        margin = SLACK * float(np.abs(following.values).max())
        groups = 1 << (following.leaves.bit_length() - 1) % SPLIT
        cell, group = (a.ravel() for a in np.indices((len(cells.cost), groups)))
        while True:
            endings = following.nested(groups)
            x, y = endings.values + margin
            needed = self._needed(cells.cost[cell] + endings.cost[group], cells.u[cell] + x[group]) - y[group]
            enough = cells.v[cell] >= needed
            if groups == following.leaves:
                break
            cell = np.repeat(cell[enough], 1 << SPLIT)
            group = ((group[enough] << SPLIT)[:, None] + np.arange(1 << SPLIT)).ravel()
            groups <<= SPLIT
        least = np.full(len(cells.cost), np.inf)
        np.minimum.at(least, cell[enough], needed[enough])
        return least


@dataclass(frozen=True)
class _Cells:
    """Prefixes that are close to each other, and for each cell the least cost and the largest indices in it."""

    of_prefix: np.ndarray
    cost: np.ndarray
    u: np.ndarray
    v: np.ndarray

    @classmethod
    def of(cls, cost: np.ndarray, values: np.ndarray, most: int) -> _Cells:
        """By cost (which rises) in rows of equal numbers, and in each row by the first index in even steps."""
        if len(cost) <= most:
            return cls(np.arange(len(cost)), cost, *values)
        columns = 1 + int(np.sqrt(most / 2))
        rows = 1 + most // columns
        starts = np.linspace(0, len(cost), rows + 1).astype(int)[:-1]
        row = np.repeat(np.arange(rows), np.diff([*starts, len(cost)]))
        low, high = np.minimum.reduceat(values[0], starts), np.maximum.reduceat(values[0], starts)
        scale = (columns - 0.5) / np.maximum(high - low, 1e-300)
        cell = row * columns + ((values[0] - low[row]) * scale[row]).astype(int)
        used = np.bincount(cell, minlength=rows * columns) > 0
        cell = (np.cumsum(used) - 1)[cell]
        least, largest = np.full(cell.max() + 1, np.inf), np.full((2, cell.max() + 1), -np.inf)
        np.minimum.at(least, cell, cost)
        for i, value in enumerate(values):
            np.maximum.at(largest[i], cell, value)
        return cls(cell, least, *largest)


class _Needed:
    """The least second index with which a network of a given cost and first index may be no worse than the known."""

    def __init__(self, problem: IndexedProblem, rivals: KnownNetworks) -> None:
        room = problem.budget - problem.fixed
        self.room = room + SLACK * abs(problem.budget) if np.isfinite(room) else np.inf
        self.u, v = (_levels(*ends) for ends in zip(*_reach(problem), (U_LEVELS, V_LEVELS), strict=True))
        wanted = rivals.accuracy - SLACK * float(np.abs(rivals.accuracy).max())
        table = _least_v(problem.link, self.u, v, wanted)
        nothing, never = np.full((len(table), 1), -np.inf), np.full((len(table), 1), np.inf)
        self.table = np.hstack([nothing, table, never])  # [first index][rival]
        self.table -= SLACK * float(np.abs(v).max())
        # rivals that cost no more than the lower end of a step in cost; the last step is open
        reach = (float(rivals.cost[-1]), self.room if np.isfinite(self.room) else 0.0, 1e-200)
        self.step = max(reach) / COST_STEPS
        ends = self.step * np.arange(COST_STEPS + 2)
        self.known = np.searchsorted(rivals.cost, ends * (1 - SLACK), side="right")
        self.known[ends > self.room] = self.table.shape[1] - 1

    def __call__(self, cost: np.ndarray, u: np.ndarray) -> np.ndarray:
        known = self.known[np.minimum(cost / self.step, COST_STEPS + 1).astype(int)]
        scale = (len(self.u) - 1) / (self.u[-1] - self.u[0])
        level = np.clip((u - self.u[0]) * scale + 1, 0, len(self.u) - 1).astype(int)  # the next above
        return self.table.ravel()[level * self.table.shape[1] + known]


def _reach(problem: IndexedProblem) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest indices that networks have, limits aside."""
    low, high = problem.base.astype(float), problem.base.astype(float)
    for stage in problem.stages:
        ends = []
        least, most = np.zeros_like(low), np.zeros_like(high)
        for b in range(stage.max_depth):
            least, most = least + stage.values[b].min(axis=1), most + stage.values[b].max(axis=1)
            if b + 1 in stage.bonus:
                ends.append((least + stage.bonus[b + 1], most + stage.bonus[b + 1]))
        low, high = low + np.min([e[0] for e in ends], axis=0), high + np.max([e[1] for e in ends], axis=0)
    return low, high


def _levels(low: float, high: float, count: int) -> np.ndarray:
    """Even levels that reach a little beyond both ends."""
    margin = SLACK * max(abs(low), abs(high), 1e-200)
    return np.linspace(low - margin, high + margin, count)


def _least_v(link: Increasing, u: np.ndarray, v: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """[u][wanted]: a v below which the link does not reach what is wanted; infinite if it never does."""
    grid = np.stack([np.repeat(u, len(v)), np.tile(v, len(u))], axis=1)
    accuracy = link(grid).reshape(len(u), len(v))
    level = np.stack([np.searchsorted(row, wanted, side="left") for row in accuracy])  # the first that is enough
    below = np.concatenate([[-np.inf], v[:-1], [np.inf]])[level]
    inside = np.flatnonzero((level > 0) & (level < len(v)))
    row, above = inside // level.shape[1], level.ravel()[inside]
    # between two levels: guessed by a straight line, and taken only if the link says that it is not enough
    from_, to = accuracy[row, above - 1], accuracy[row, above]
    share = (np.broadcast_to(wanted, level.shape).ravel()[inside] - from_) / np.maximum(to - from_, 1e-300)
    guess = v[above - 1] + np.maximum(share - GUESS, 0.0) * (v[1] - v[0])
    enough = link(np.stack([u[row], guess], axis=1)) >= np.broadcast_to(wanted, level.shape).ravel()[inside]
    below.ravel()[inside] = np.where(enough, v[above - 1], guess)
    return below
