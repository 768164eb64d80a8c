"""The paper's practice (section 4.2.4): run its three solvers and take the best."""

from __future__ import annotations

from dataclasses import dataclass

from deploynas.progress import OnProgress, silent
from deploynas.search.bcfw import Bcfw
from deploynas.search.evolution import Evolution
from deploynas.search.milp import Milp
from deploynas.search.objective import Opaque, Separable
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution


@dataclass(frozen=True)
class BestOf:
    seed: int = 0

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        """Of the same network found twice, the one with a proof counts. Solvers that cannot are left out."""
        found: list[Solution] = []
        if not isinstance(problem.objective, Opaque):
            found += Milp(self.seed).solve(problem, top)
        on_progress(1 / 3, "milp")
        if isinstance(problem.objective, Separable):
            found += Bcfw(self.seed).solve(problem, top)
        on_progress(2 / 3, "bcfw")
        found += Evolution(self.seed).solve(problem, top)
        on_progress(1.0, "evolution")
        found.sort(key=lambda solution: (-solution.accuracy, not solution.optimal))
        return list({solution.architecture: solution for solution in reversed(found)}.values())[::-1][:top]
