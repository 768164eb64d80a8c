"""The proven optimum. One limit that adds up: from the frontier, in milliseconds. Several, or an estimator
that couples stages: from the integer linear form, which several sums behind a link do not have (`several_limits`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from deploynas.progress import OnProgress, silent
from deploynas.search.feasibility import require_feasible
from deploynas.search.frontier import problem_frontier
from deploynas.search.milp import Milp
from deploynas.search.problem import Problem
from deploynas.search.ranking import k_best
from deploynas.search.several_limits import SeveralLimits
from deploynas.search.solver import Solution, cannot_maximise
from deploynas.space.coefficients import Cost, CoupledObjective, IndexedObjective, SeparableObjective


@dataclass(frozen=True)
class Exact:
    handles: ClassVar = (SeparableObjective, CoupledObjective, IndexedObjective)

    seed: int = 0  # draws nothing; every solver takes one
    time_limit_s: float = 60.0  # where it may take long; when it ends, the best so far with its proven gap

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        if not isinstance(problem.objective, self.handles):
            raise cannot_maximise("`exact`", problem.objective)
        if len(problem.additive) > 1 and not isinstance(problem.objective, Milp.handles):
            return SeveralLimits(self.time_limit_s).solve(problem, top, on_progress)
        if len(problem.additive) > 1 or isinstance(problem.objective, CoupledObjective):
            solutions = Milp(time_limit_s=self.time_limit_s).solve(problem, top, on_progress)
            return [replace(solution, solver="exact") for solution in solutions]
        require_feasible(problem)
        if not problem.additive:
            problem = replace(problem, costs=(*problem.costs, _nothing(problem)))
        if top > 1:
            ranked = k_best(problem, top)
        else:
            point = problem_frontier(problem)[-1]  # the frontier ends at the budget
            ranked = [(point.score, point.architecture)]
        return [Solution(arch, score, "exact", optimal=True, gap=0.0) for score, arch in ranked]


def _nothing(problem: Problem) -> Cost:
    """A limit that nothing counts against: the frontier is then the one best network."""
    blocks = tuple(np.zeros_like(allowed, dtype=float) for allowed in problem.allowed)
    return Cost("nothing", "sum", "count", 0.0, blocks)
