"""The solver on the integer linear form: any number of limits, estimators that couple stages.

The program under it works with tolerances, we do not: every network it returns is checked, and one that is over a
budget by a rounding error is cut off, as are those already found when the next best is wanted. Its proof of
optimality holds up to about 1e-9 of the largest coefficient of the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deploynas.errors import GateError
from deploynas.progress import OnProgress, silent
from deploynas.search.by_index import solve_by_index
from deploynas.search.feasibility import require_feasible
from deploynas.search.integer_form import MAX_REJECTED, IntegerForm
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution, cannot_maximise
from deploynas.space.coefficients import CoupledObjective, Objective, OneIndexObjective, SeparableObjective

RAISE_BUDGET = "raise them by a millionth"


@dataclass(frozen=True)
class Milp:
    handles: ClassVar[tuple[type[Objective], ...]] = (SeparableObjective, CoupledObjective, OneIndexObjective)

    seed: int = 0  # draws nothing; every solver takes one
    time_limit_s: float = 60.0  # of one solve; when it ends, the best so far with its proven gap

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        if not isinstance(problem.objective, self.handles):
            raise cannot_maximise("the integer form", problem.objective)
        if isinstance(problem.objective, OneIndexObjective):
            return solve_by_index(self, problem, problem.objective, top, on_progress)
        require_feasible(problem)
        form = IntegerForm(problem)
        found: list[Solution] = []
        rejected: list[float] = []  # scores of networks that were over a budget by a rounding error
        while len(found) < top:
            outcome = form.maximise(self.time_limit_s)
            if outcome is None:
                break  # every network has been found
            architecture, gap = outcome
            score = problem.score(architecture)
            form.cut_off(architecture)
            if not problem.allows(architecture):
                rejected.append(score)
                if len(rejected) == MAX_REJECTED:
                    form.tighten()
                continue
            if len(rejected) >= MAX_REJECTED:  # one of those that were not looked at might have fitted
                gap = max(gap, max(rejected) - score)
            found.append(Solution(architecture, score, "milp", optimal=gap <= 0.0, gap=gap))
            on_progress(len(found) / top, f"{len(found)} of {top} networks")
        if not found:
            raise GateError("networks come within a rounding error of the budgets, none within them", RAISE_BUDGET)
        return sorted(found, key=lambda solution: -solution.score)
