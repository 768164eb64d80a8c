"""Block-coordinate Frank-Wolfe (Algorithm 1): configurations at fixed depths, then depths at fixed ones.

Each half-step is a relaxed multiple-choice knapsack and is solved outright (step size 1, Theorem F.2), so
iterates stay vertices of it: with one limit at most one row is not one-hot, with at most two non-zeros
(Theorem 3.3; with L limits at most L rows). The alternation stops moving after a few steps, at a point that
depends on where it started, so it is started from many depths at once. Fractions are rounded to what fits,
and a last step spends what the rounding left over; no network over a budget is ever returned.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deploynas.progress import OnProgress, silent
from deploynas.search.by_index import solve_by_index
from deploynas.search.by_slopes import solve_by_slopes
from deploynas.search.feasibility import require_feasible
from deploynas.search.local import improve
from deploynas.search.neighbours import best_nearby
from deploynas.search.networks import Evaluator, Networks, join
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution, separable
from deploynas.space.coefficients import IndexedObjective, Objective, OneIndexObjective, SeparableObjective

STANDSTILL = 1e-9  # a gain in score that is none


@dataclass(frozen=True)
class Bcfw:
    handles: ClassVar[tuple[type[Objective], ...]] = (SeparableObjective, IndexedObjective)

    seed: int = 0
    iterations: int = 2000  # the paper's; it has stopped moving long before
    starts: int = 48
    improved: int = 8  # of the rounded networks, the best so many are improved by small changes
    probability: float = 0.5  # of a step over configurations rather than depths

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        if isinstance(problem.objective, OneIndexObjective):
            return solve_by_index(self, problem, problem.objective, top, on_progress)
        if isinstance(problem.objective, IndexedObjective):
            return solve_by_slopes(self, problem, problem.objective, top, on_progress)
        separable(problem, "`bcfw`")
        evaluator = Evaluator(problem)
        fallback = Networks.from_rows(evaluator.decisions, problem.space.rows([require_feasible(problem)]))
        alpha, beta = self.relaxed(evaluator)
        found = join(_rounded(alpha, beta), fallback)
        found = found[evaluator.within(found)]
        found = join(improve(evaluator, found, self.improved), found)
        ranked = evaluator.best_distinct(best_nearby(evaluator, found, top) if top > 1 else found, top)
        return [Solution(arch, score, "bcfw", optimal=False, gap=None) for score, arch in ranked]

    def relaxed(self, evaluator: Evaluator) -> tuple[np.ndarray, np.ndarray]:
        """alpha[start][stage][block][configuration] and beta[start][stage][depth] where Algorithm 1 stops."""
        rng = np.random.default_rng(self.seed)
        beta = _starting_depths(evaluator, rng, self.starts)
        alpha = _best_configs(evaluator, beta)
        worth, still = _objective(evaluator, alpha, beta), set[str]()
        for _ in range(self.iterations):
            if rng.random() < self.probability:
                step, alpha = "alpha", _best_configs(evaluator, beta)
            else:
                step, beta = "beta", _best_depths(evaluator, alpha)
            before, worth = worth, _objective(evaluator, alpha, beta)
            # steps never lose; when neither kind gains any more, nothing will move again
            still = {*still, step} if (worth - before).max() <= STANDSTILL else {step}
            if len(still) == 2:
                break
        return alpha, beta


def _starting_depths(evaluator: Evaluator, rng: np.random.Generator, count: int) -> np.ndarray:
    """One-hot depths for which some configurations fit each limit: the shallowest, and random ones."""
    usable = evaluator.usable_exit
    drawn = rng.integers(evaluator.exits, size=(8 * count, evaluator.stages))
    drawn[0] = usable.argmax(axis=1)
    stages = np.arange(evaluator.stages)
    fits = np.asarray(usable[stages, drawn].all(axis=1))
    for cost, table in zip(evaluator.problem.costs, evaluator.block_cost, strict=True):
        if cost.kind == "sum":
            cheapest = np.where(evaluator.allowed, table, np.inf).min(axis=2)
            needed = np.where(evaluator.takes_part, cheapest[:, None, :], 0.0).sum(axis=2)
            fits &= cost.fixed + needed[stages, drawn].sum(axis=1) <= cost.budget
    fits[0] = True
    chosen = list(dict.fromkeys(map(tuple, drawn[fits].tolist())))[:count]
    return np.eye(evaluator.exits)[np.array(chosen)]


def _best_configs(evaluator: Evaluator, beta: np.ndarray) -> np.ndarray:
    """The step over alpha. A block that takes no part gets what it would choose at the going price."""
    starts, shape = len(beta), evaluator.allowed.shape
    value = np.einsum("nsi,sibc->nsbc", beta, evaluator.value)
    share = np.einsum("nsi,sib->nsb", beta, evaluator.takes_part.astype(float))
    costs = np.einsum("nsb,lsbc->lnsbc", share, evaluator.block_cost[evaluator.additive])
    # a block without a choice (padding, or all forbidden) takes no part; it needs some option all the same
    valid = evaluator.allowed | (~evaluator.possible[..., None] & (np.arange(shape[2]) == 0))
    flat = (starts, shape[0] * shape[1], shape[2])
    weights, price = relaxed_knapsack(
        value.reshape(flat), costs.reshape(-1, *flat), valid.reshape(flat[1:]), _room(evaluator)
    )
    alpha = weights.reshape(starts, *shape)
    # for rows without a share every choice is optimal; this one lets deeper networks look as good as they are
    first = evaluator.takes_part.argmax(axis=1)  # [stage][block]: the shallowest depth that has the block
    worth = evaluator.value[np.arange(shape[0])[:, None], first, np.arange(shape[1])]
    paid = np.einsum("nl,lsbc->nsbc", price, evaluator.block_cost[evaluator.additive])
    would = np.where(valid, worth - paid, -np.inf).argmax(axis=3)
    return np.where((share > 0)[..., None], alpha, np.eye(shape[2])[would])


def _best_depths(evaluator: Evaluator, alpha: np.ndarray) -> np.ndarray:
    """The step over beta."""
    value = evaluator.bonus + np.einsum("nsbc,sibc->nsi", alpha, evaluator.value)
    block = np.einsum("nsbc,lsbc->lnsb", alpha, evaluator.block_cost[evaluator.additive])
    costs = np.einsum("lnsb,sib->lnsi", block, evaluator.takes_part.astype(float))
    return relaxed_knapsack(value, costs, evaluator.usable_exit, _room(evaluator))[0]


def _objective(evaluator: Evaluator, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    value = np.einsum("nsbc,sibc->nsi", alpha, evaluator.value)
    return np.einsum("nsi,nsi->n", beta, evaluator.bonus + value)


def _room(evaluator: Evaluator) -> np.ndarray:
    return np.array([cost.budget - cost.fixed for cost in evaluator.problem.additive])


def relaxed_knapsack(
    value: np.ndarray, costs: np.ndarray, valid: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Maximise value . w over a weight vector for each row, under costs . w <= room (eq. 45); n problems.

    value[n][row][option], costs[limit][n][row][option], valid[row][option], room[limit]. Returns the weights
    and the price of each limit. Problems without a solution get the cheapest options.
    """
    if len(costs) > 1:
        solved = [_linear_program(value[n], costs[:, n], valid, room) for n in range(len(value))]
        return np.array([w for w, _ in solved]), np.array([p for _, p in solved])
    cost = costs[0] if len(costs) else np.zeros_like(value)
    weights, price = _by_slopes(value, cost, valid, room[0] if len(costs) else np.inf)
    return weights, price[:, None] if len(costs) else np.empty((len(value), 0))


def _by_slopes(value: np.ndarray, cost: np.ndarray, valid: np.ndarray, room: float) -> tuple[np.ndarray, np.ndarray]:
    """One limit: up the convex hulls from the cheapest options, steepest step first, while there is room."""
    problems, rows, options = value.shape
    hull, slope, length = _hulls(value, cost, valid)
    # within a row slopes fall, so a stable sort keeps its steps in order
    order = np.argsort(-slope, axis=1, kind="stable")
    uphill = np.take_along_axis(slope, order, axis=1) > 0
    left = np.maximum(0.0, room - _pick(cost, hull[:, 0]).sum(axis=1))
    spent = np.cumsum(np.take_along_axis(length, order, axis=1), axis=1)
    whole = uphill & (spent <= left[:, None])
    steps = np.zeros(slope.shape, dtype=int)
    np.put_along_axis(steps, order, whole.astype(int), axis=1)
    reached = steps.reshape(problems, -1, rows).sum(axis=1)  # how far up its hull each row has gone
    weights = np.eye(options)[np.take_along_axis(hull, reached[:, None, :], axis=1)[:, 0]]
    price = np.zeros(problems)
    count = whole.sum(axis=1)
    for n in np.flatnonzero(count < uphill.sum(axis=1)):  # one more step, of which only a part fits
        step = order[n, count[n]]
        row, before = step % rows, spent[n, count[n] - 1] if count[n] else 0.0
        share = (left[n] - before) / length[n, step]
        price[n] = slope[n, step]
        weights[n, row] *= 1 - share
        weights[n, row, hull[n, reached[n, row] + 1, row]] += share
    return weights, price


def _hulls(value: np.ndarray, cost: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The upper convex hull of every row from its cheapest option on.

    Returns hull[n][step][row] (options), and slope and length in cost of the steps, both [n][step * row]; a
    row whose hull has ended repeats its last option with slope 0.
    """
    value = np.where(valid, value, -np.inf)
    cheapest = np.where(valid, cost, np.inf).min(axis=2, keepdims=True)
    current = np.where(valid & (cost == cheapest), value, -np.inf).argmax(axis=2)
    hull, slopes, lengths = [current], [], []
    while True:
        more = cost - _pick(cost, current)[..., None]
        gain = value - _pick(value, current)[..., None]
        uphill = (more > 0) & (gain > 0)
        if not uphill.any():
            break
        slope = np.where(uphill, gain / np.where(uphill, more, 1.0), 0.0)
        steepest = slope.max(axis=2, keepdims=True)
        chosen = np.where(uphill & (slope == steepest), more, -1.0).argmax(axis=2)  # the farthest of equals
        current = np.where(uphill.any(axis=2), chosen, current)
        slopes.append(steepest[..., 0])
        lengths.append(_pick(more, current))
        hull.append(current)
    shape = (len(value), len(slopes) * value.shape[1])
    if not slopes:
        return np.stack(hull, axis=1), np.zeros(shape), np.zeros(shape)
    return (
        np.stack(hull, axis=1),
        np.stack(slopes, axis=1).reshape(shape),
        np.stack(lengths, axis=1).reshape(shape),
    )


def _pick(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    return np.take_along_axis(array, index[..., None], axis=2)[..., 0]


def _linear_program(
    value: np.ndarray, costs: np.ndarray, valid: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Several limits. The simplex method ends in a vertex, which is what keeps the weights sparse."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    row, _ = np.nonzero(valid)
    places = row.astype(np.int32), np.arange(len(row), dtype=np.int32)  # SciPy < 1.15 takes no wider ones
    one_hot = csr_array((np.ones(len(row)), places))
    scale = costs[:, valid].max(axis=1) + 1e-300
    result = linprog(
        -value[valid],
        A_ub=costs[:, valid] / scale[:, None],
        b_ub=room / scale,
        A_eq=one_hot,
        b_eq=np.ones(len(value)),
        method="highs-ds",
    )
    weights = np.zeros_like(value)
    if result.x is None:
        cheapest = np.where(valid, (costs / np.maximum(room, 1e-300)[:, None, None]).max(axis=0), np.inf)
        return np.eye(value.shape[1])[cheapest.argmin(axis=1)], np.zeros(len(room))
    weights[valid] = np.where(result.x > 1e-12, result.x, 0.0)
    return weights / weights.sum(axis=1, keepdims=True), -result.ineqlin.marginals / scale


def _rounded(alpha: np.ndarray, beta: np.ndarray) -> Networks:
    """Both ends of every fraction, in all combinations of configurations and depths."""
    combinations = itertools.product(_ends(alpha), _ends(beta))
    return join(*(Networks(configs, depths) for configs, depths in combinations))


def _ends(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    largest = weights.argmax(axis=-1)
    rest = weights.copy()
    np.put_along_axis(rest, largest[..., None], 0.0, axis=-1)
    return largest, np.where(rest.any(axis=-1), rest.argmax(axis=-1), largest)
