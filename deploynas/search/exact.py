"""The proven optimum. One limit that adds up: from the frontier, in milliseconds. Several, or an estimator
that couples stages: from the integer linear form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from deploynas.progress import OnProgress, silent
from deploynas.search.feasibility import require_feasible
from deploynas.search.frontier import problem_frontier
from deploynas.search.objective import Separable
from deploynas.search.problem import Cost, Problem
from deploynas.search.ranking import k_best
from deploynas.search.solver import Solution


@dataclass(frozen=True)
class Exact:
    seed: int = 0  # draws nothing; every solver takes one

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        if len(problem.additive) > 1 or not isinstance(problem.objective, Separable):
            from deploynas.search.milp import Milp

            solutions = Milp().solve(problem, top, on_progress)
            return [replace(solution, solver="exact") for solution in solutions]
        require_feasible(problem)
        if not problem.additive:
            problem = replace(problem, costs=(*problem.costs, _nothing(problem)))
        if top > 1:
            ranked = k_best(problem, top)
        else:
            point = problem_frontier(problem)[-1]  # the frontier ends at the budget
            ranked = [(point.accuracy, point.architecture)]
        return [Solution(arch, accuracy, "exact", optimal=True, gap=0.0) for accuracy, arch in ranked]


def _nothing(problem: Problem) -> Cost:
    """A limit that nothing counts against: the frontier is then the one best network."""
    blocks = tuple(np.zeros((stage.max_depth, len(stage.configs))) for stage in problem.space.stages)
    return Cost("nothing", "sum", 0.0, blocks, math.inf, None)
