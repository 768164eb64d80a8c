"""Several sums behind a link under several limits that add up: proven, or with a stated gap.

Such a score has no integer linear form. Prefixes of networks are compared as in `indexed_frontier`, with one value more
for every limit beyond the first: what is spent of it, negated. A prefix is dropped if as many others as networks are
asked for cost no more of anything and are no less in any sum, or if it cannot equal the networks known already. What
it can reach is bounded by problems with a single limit, each limit alone and all limits added up: whatever keeps all
limits keeps those. That is exact to the last bit while lists are short. Where they grow too long it is given up, and
with two sums `index_intervals` proves what it can until time is up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from deploynas.progress import OnProgress, silent
from deploynas.search.completion_bounds import SLACK, CompletionBounds, KnownNetworks, best_by_sums, weightings
from deploynas.search.dominance import undominated
from deploynas.search.feasibility import require_feasible
from deploynas.search.following import Endings
from deploynas.search.index_intervals import IndexIntervals
from deploynas.search.neighbours import best_nearby
from deploynas.search.networks import Evaluator, Networks, join
from deploynas.search.prefixes import IndexedProblem, IndexedStage, Prefixes, walk
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution
from deploynas.space import Architecture
from deploynas.space.coefficients import Cost, IndexedObjective

FEW = 2_000  # prefixes that are not worth bounds
MOST = 8_000  # prefixes that are compared with each other at once
STARTS = 16  # networks to look around at first


@dataclass(frozen=True)
class SeveralLimits:
    """The `top` best networks of a problem with two indices or more, whatever its limits."""

    time_limit_s: float = 60.0

    def solve(self, problem: Problem, top: int, on_progress: OnProgress = silent) -> list[Solution]:
        objective = problem.objective
        assert isinstance(objective, IndexedObjective)
        evaluator = Evaluator(problem)
        relaxed = [IndexedProblem.of(objective, cost, problem.allowed) for cost in _relaxations(problem)]
        known = best_nearby(evaluator, _starts(evaluator, relaxed[-1]), top)
        best = evaluator.best_distinct(known, top)
        missed = -np.inf  # no network that is not among the best scores more
        if len(best) == top:  # else these are all there are
            try:
                limited, admission = (
                    _with_limits_as_values(objective, problem),
                    _Admission(problem, relaxed, best[-1][0]),
                )
                whole = walk(limited, lambda cost, values: undominated(cost, values, top), admission)
                best = evaluator.best_distinct(join(known, _networks(problem, whole)), top)
            except _TooLongError:
                best, missed = self._by_intervals(problem, best)
        on_progress(1.0, f"{len(best)} networks")
        return [
            Solution(arch, score, "exact", missed <= score, None if missed == np.inf else max(0.0, missed - score))
            for score, arch in best
        ]

    def _by_intervals(
        self, problem: Problem, best: list[tuple[float, Architecture]]
    ) -> tuple[list[tuple[float, Architecture]], float]:
        """The best known afterwards, and what no other network exceeds."""
        assert isinstance(problem.objective, IndexedObjective)
        if len(problem.objective.indices) != 2:
            return best, np.inf
        intervals = IndexIntervals(problem)
        missed = intervals.bound(best, time.monotonic() + self.time_limit_s)
        return _best([*best, *intervals.found], len(best)), missed


def _best(networks: list[tuple[float, Architecture]], top: int) -> list[tuple[float, Architecture]]:
    return sorted(networks, key=lambda found: -found[0])[:top]


def _relaxations(problem: Problem) -> list[Cost]:
    """Every limit alone, and all together: the shares of the budgets, added up."""
    first = problem.additive[0]
    blocks = tuple(
        np.sum([cost.blocks[s] / cost.budget for cost in problem.additive], axis=0) for s in range(len(first.blocks))
    )
    # summed in another order than each limit is, hence the slack
    room = sum((cost.budget - cost.fixed) / cost.budget for cost in problem.additive) + SLACK * len(problem.additive)
    return [*problem.additive, replace(first, name="all limits", fixed=0.0, blocks=blocks, budget=room)]


def _starts(evaluator: Evaluator, together: IndexedProblem) -> Networks:
    """Networks within all limits: the best by weighted sums of the indices, of those that cost little of everything."""
    space = evaluator.problem.space
    fallback = Networks.from_rows(evaluator.decisions, space.rows([require_feasible(evaluator.problem)]))
    if len(together.base) != 2:
        return fallback
    rows = []
    for found in best_by_sums(together, weightings(together, 1), 1):
        best = np.argsort(-together.link(found.values.T), kind="stable")
        rows += [space.architecture(found.choices(int(i))) for i in best[:: max(1, len(best) // STARTS)]]
    networks = join(fallback, Networks.from_rows(evaluator.decisions, space.rows(rows)))
    return networks[evaluator.within(networks)]


def _with_limits_as_values(objective: IndexedObjective, problem: Problem) -> IndexedProblem:
    """The first limit as the cost; after the indices, the others negated: less is better, as with the cost."""
    plain, others = IndexedProblem.of(objective, problem.additive[0], problem.allowed), problem.additive[1:]
    stages = []
    for s, stage in enumerate(plain.stages):
        spent = [np.array([-cost.blocks[s][b] for cost in others]) for b in range(len(stage.cost))]
        values = tuple(np.vstack([v, x]) for v, x in zip(stage.values, spent, strict=True))
        bonus = {depth: np.append(b, np.zeros(len(others))) for depth, b in stage.bonus.items()}
        stages.append(IndexedStage(stage.cost, values, bonus, stage.allowed))
    base = np.append(plain.base, np.zeros(len(others)))
    return replace(plain, stages=tuple(stages), base=base, link=lambda u: plain.link(u[:, : len(plain.base)]))


def _networks(problem: Problem, prefixes: Prefixes) -> Networks:
    """The networks among the last prefixes, which are few: those that may be among the best."""
    decisions = problem.space.decisions
    rows = decisions.rows([prefixes.choices(i) for i in range(len(prefixes))])
    return Networks.from_rows(decisions, rows)


class _TooLongError(Exception):
    """More prefixes are left than can be compared with each other."""


class _Admission:
    """Admits what keeps all limits and may equal the known networks by every relaxed problem."""

    def __init__(self, problem: Problem, relaxed: list[IndexedProblem], wanted: float) -> None:
        self.costs, self.relaxed = problem.additive, relaxed
        self.indices = len(relaxed[0].base)
        rivals = KnownNetworks(np.zeros(1), np.array([wanted]))
        self.bounds = [CompletionBounds(one, lambda _: rivals, few=0) for one in relaxed]

    def after_block(self, s: int, b: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._admit([bounds.following.after_block(s, b) for bounds in self.bounds], cost, values)

    def after_stage(self, s: int, cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._admit([bounds.following.after_stage(s) for bounds in self.bounds], cost, values)

    @cached_property
    def _shares(self) -> np.ndarray:
        return np.array([1 / cost.budget for cost in self.costs])

    def _admit(self, following: list[Endings], cost: np.ndarray, values: np.ndarray) -> np.ndarray:
        indices, spent = values[: self.indices], np.vstack([cost, -values[self.indices :]])
        spent = np.vstack([spent, self._shares @ spent])
        admitted = np.ones(len(cost), dtype=bool)
        for own, limit in zip(spent, self.costs, strict=False):
            admitted &= limit.fixed + own <= limit.budget
        if self.indices == 2 and len(cost) >= FEW:
            for bounds, endings, own in zip(self.bounds, following, spent, strict=True):
                left = np.flatnonzero(admitted)
                left = left[np.argsort(own[left], kind="stable")]
                admitted[left] = bounds.admits(endings, own[left], indices[:, left])
        if np.count_nonzero(admitted) > MOST:
            raise _TooLongError
        return admitted
