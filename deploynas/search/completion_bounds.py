"""What a prefix of two indices can still reach, and so which prefixes can be dropped before they are complete.

Whatever follows a prefix adds at most U(t) to the first index and V(t) to the second for t more of cost, and at most
W(t) to each of a few weighted sums of both: one-dimensional frontiers, computed backwards. Together they enclose
what may follow in a few boxes with corners (t, x, y). A prefix (cost, u, v) is worth keeping only if at some corner
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
from deploynas.search.prefixes import Budget, IndexedProblem, walk

SLACK = 1e-9  # relative; a sum of a hundred terms is off by about 1e-14
FEW = 20_000  # prefixes that are not worth a table
LONGEST = 1_024  # one-dimensional lists are thinned to this length
STEPS, BOXES = 96, 3  # corners: steps in the cost of what follows, times boxes per step
COST_CELLS, INDEX_CELLS = 128, 64  # of a position's table, in cost and in the first index
LEVELS = 400  # of both indices in the table of the link
RIVALS = 384

Curve = tuple[np.ndarray, np.ndarray]  # cost and value, both rising


@dataclass(frozen=True)
class Rivals:
    """Known networks that a prefix must be able to equal, cheapest first: cost without the fixed part, accuracy."""

    cost: np.ndarray
    accuracy: np.ndarray
    weightings: list[np.ndarray]  # of the two indices, by which they were found


def frontier_rivals(problem: IndexedProblem) -> Rivals:
    """Networks near the frontier: what becomes part of it must equal whichever of them cost no more."""
    weightings = _weightings(problem, 1)
    cost, values = _best_by_sums(problem, weightings, 1)
    accuracy = problem.link(values.T)
    best = merging.undominated(cost, accuracy)
    best = best[np.unique(np.linspace(0, len(best) - 1, RIVALS).astype(int))] if len(best) else best
    return Rivals(cost[best], accuracy[best], weightings)


def k_best_rivals(count: int, problem: IndexedProblem) -> Rivals:
    """One of the `count` best networks must equal the least of `count` known ones, whatever it costs."""
    weightings = _weightings(problem, count)
    cost, values = _best_by_sums(problem, weightings, count)
    distinct = np.unique(np.vstack([cost, values]), axis=1)[1:]  # one network may have been found twice
    if distinct.shape[1] < count:
        return Rivals(np.empty(0), np.empty(0), weightings)
    return Rivals(np.zeros(1), np.sort(problem.link(distinct.T))[-count:][:1], weightings)


def _weightings(problem: IndexedProblem, count: int) -> list[np.ndarray]:
    """Weights of the two indices: what the link itself weighs them by, here and there among good networks."""
    spread = np.maximum(
        sum((np.ptp(v, axis=1) for s in problem.stages for v in s.values if v.size), np.zeros(2)), 1e-300
    )
    equal = 1 / spread
    _, values = _best_by_sums(problem, [equal], count)
    if not values.shape[1]:
        return [equal]
    here = problem.link(values.T)
    rise = [problem.link((values + 1e-3 * step[:, None]).T) - here for step in np.diag(spread)]
    angles = np.arctan2(np.maximum(rise[1], 0), np.maximum(rise[0], 0) + 1e-300)
    angles = np.clip(np.quantile(angles, (0.05, 0.5, 0.95)), 0.02, np.pi / 2 - 0.02)
    return [np.array([np.cos(a), np.sin(a)]) / spread for a in np.unique(angles)]


def _best_by_sums(
    problem: IndexedProblem, weightings: Sequence[np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Costs (without the fixed part) and indices of the networks that are best by a weighted sum of the indices."""

    def best_by(weights: np.ndarray, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return merging.undominated(cost, weights @ values, count)

    found = [walk(problem, partial(best_by, weights), Budget(problem)) for weights in weightings]
    return np.concatenate([f.cost for f in found]), np.concatenate([f.values for f in found], axis=1)


class CompletionBounds:
    """Admits the prefixes that may still become a network no worse than the rivals that cost no more.

    Nothing is computed before a list is long enough to be worth it.
    """

    def __init__(self, problem: IndexedProblem, find_rivals: Callable[[IndexedProblem], Rivals]) -> None:
        self.problem, self.find_rivals = problem, find_rivals

    def after_block(self, s: int, b: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        if len(cost) < FEW:
            return self.problem.fits(cost)
        return self._admits([curve.after[s][b] for curve in self._curves], cost, values)

    def after_stage(self, s: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        if len(cost) < FEW:
            return self.problem.fits(cost)
        return self._admits([curve.end[s] for curve in self._curves], cost, values)

    @cached_property
    def _rivals(self) -> Rivals:
        return self.find_rivals(self.problem)

    @cached_property
    def _weightings(self) -> list[np.ndarray]:
        return [np.array([1.0, 0.0]), np.array([0.0, 1.0]), *self._rivals.weightings]

    @cached_property
    def _curves(self) -> list[_Backwards]:
        return [_backwards(self.problem, weights) for weights in self._weightings]

    @cached_property
    def _needed(self) -> _Needed:
        return _Needed(self.problem, [curve.start for curve in self._curves[:2]], self._rivals)

    def _admits(self, curves: list[Curve], cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        if not len(self._rivals.cost):
            return self.problem.fits(cost)
        if not len(cost) or not len(curves[0][0]):  # no network begins like this: what follows is forbidden
            return np.zeros(len(cost), dtype=bool)
        t, x, y = _corners(curves, self._weightings)
        row, least_cost, _ = _cells(cost, COST_CELLS)
        column, _, largest_u = _cells(values[0], INDEX_CELLS)
        least_v = self._needed(least_cost[:, None] + t, largest_u[:, None] + x, y)
        return values[1] >= least_v[row, column]


def _cells(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cell of every value in an even grid, and the lower and upper ends of all cells, a little too far out."""
    low, high = float(values.min()), float(values.max())
    margin = SLACK * max(abs(low), abs(high), 1e-200)
    edges = np.linspace(low, high + margin, count + 1)
    cells = ((values - low) * (count / (high + margin - low))).astype(int)
    return np.minimum(cells, count - 1), edges[:-1] - margin, edges[1:] + margin


def _corners(curves: Sequence[Curve], weightings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (t, x, y): whatever follows lies in one of them, costs at least its t, adds at most its x and its y."""
    lowest, highest = curves[0][0][0], max(cost[-1] for cost, _ in curves)
    t = np.linspace(lowest, highest, STEPS)
    ends = np.append(t[1:] * (1 + SLACK), np.inf)
    most = [value[np.searchsorted(cost, ends, side="right") - 1] for cost, value in curves]
    margin = SLACK * max(float(np.abs(value).max()) for _, value in curves[:2])
    u, v, sums = most[0] + margin, most[1] + margin, list(zip(most[2:], weightings[2:], strict=True))
    # where the bound of the second index is all that counts; from there on the weighted sums count
    corner = np.min([u, *((w - d[1] * v) / d[0] for w, d in sums)], axis=0)
    x = corner + (u - corner) * np.linspace(0, 1, BOXES + 1)[:, None]
    y = np.min([np.broadcast_to(v, (BOXES, STEPS)), *((w - d[0] * x[:-1]) / d[1] + margin for w, d in sums)], axis=0)
    return np.tile(t, BOXES + 1), (x + margin).ravel(), np.vstack([v, y]).ravel()


class _Needed:
    """The least second index with which a network of a given cost and first index may be no worse than the known."""

    def __init__(self, problem: IndexedProblem, start: Sequence[Curve], rivals: Rivals) -> None:
        room = problem.budget - problem.fixed
        self.room = room + SLACK * abs(problem.budget) if np.isfinite(room) else np.inf
        self.cost = rivals.cost
        top = [float(base + values[-1]) for base, (_, values) in zip(problem.base, start, strict=True)]
        reach = [float(values[-1] - values[0]) for _, values in start]
        self.u, v = (
            np.linspace(t - r, t, LEVELS) + SLACK * max(abs(t), abs(t - r), 1e-200)
            for t, r in zip(top, reach, strict=True)
        )
        grid = np.stack([np.repeat(self.u, LEVELS), np.tile(v, LEVELS)], axis=1)
        accuracy = problem.link(grid).reshape(LEVELS, LEVELS)
        wanted = rivals.accuracy - SLACK * float(np.abs(rivals.accuracy).max())
        below = np.concatenate([[-np.inf], v[:-1], [np.inf]])  # the level below the first that is enough
        table = below[np.stack([np.searchsorted(row, wanted, side="left") for row in accuracy])]
        nothing, never = np.full((LEVELS, 1), -np.inf), np.full((LEVELS, 1), np.inf)
        self.table = np.hstack([nothing, table, never])  # [first index][rival]
        self.margin = SLACK * float(np.abs(v).max())

    def __call__(self, cost: np.ndarray, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        """[cost][u]: the least over all corners, less what the corner adds; `cost` and `u` are (cells, corners)."""
        known = np.searchsorted(self.cost, cost * (1 - SLACK), side="right")
        known[cost > self.room] = self.table.shape[1] - 1
        level = np.minimum(np.searchsorted(self.u, u, side="left"), LEVELS - 1) * self.table.shape[1]
        table = self.table.ravel()
        return np.stack([(table[level + row] - y).min(axis=1) for row in known]) - self.margin


@dataclass(frozen=True)
class _Backwards:
    """For every position in a network, the most that what follows adds to a weighted sum, by its cost."""

    after: list[list[Curve]]  # [stage][block]
    end: list[Curve]  # [stage], once its depth is decided
    start: Curve


def _backwards(problem: IndexedProblem, weights: np.ndarray) -> _Backwards:
    after: list[list[Curve]] = []
    end: list[Curve] = []
    following: Curve = np.zeros(1), np.zeros(1)
    for stage in reversed(problem.stages):
        end.insert(0, following)
        blocks: list[Curve] = []
        deeper: Curve | None = None
        for b in reversed(range(stage.max_depth)):
            options = [] if deeper is None else [deeper]
            if b + 1 in stage.bonus:
                options.append((end[0][0], end[0][1] + weights @ stage.bonus[b + 1]))
            blocks.insert(0, _merged(options))
            configs = stage.configs(b)
            cost, value = stage.cost[b][configs], weights @ stage.values[b][:, configs]
            deeper = _merged([(blocks[0][0] + c, blocks[0][1] + x) for c, x in zip(cost, value, strict=True)])
        assert deeper is not None
        after.insert(0, blocks)
        following = deeper
    return _Backwards(after, end, following)


def _merged(curves: Sequence[Curve]) -> Curve:
    """The best of all; long ones are thinned in their favour, to the least cost and the most value of neighbours."""
    if not curves:
        return np.empty(0), np.empty(0)
    cost, value = (np.concatenate(parts) for parts in zip(*curves, strict=True))
    kept = merging.undominated(cost, value)
    if len(kept) <= LONGEST:
        return cost[kept], value[kept]
    starts = np.linspace(0, len(kept), LONGEST + 1).astype(int)
    return cost[kept[starts[:-1]]], value[kept[starts[1:] - 1]]
