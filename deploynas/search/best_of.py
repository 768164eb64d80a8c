"""The paper's practice (section 4.2.4): run its three solvers and take the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution, load_solver
from deploynas.space.coefficients import Objective

OF = ("milp", "bcfw", "evolution")


@dataclass(frozen=True)
class BestOf:
    handles: ClassVar = (Objective,)  # one of its solvers takes any

    seed: int = 0

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        """Of the same network found twice, the one with a proof counts. Solvers that cannot are left out."""
        found: list[Solution] = []
        for i, name in enumerate(OF):
            solver = load_solver(name, self.seed)
            if isinstance(problem.objective, solver.handles):
                found += solver.solve(problem, top)
            on_progress((i + 1) / len(OF), name)
        found.sort(key=lambda solution: (-solution.score, not solution.optimal))
        return list({solution.architecture: solution for solution in reversed(found)}.values())[::-1][:top]
