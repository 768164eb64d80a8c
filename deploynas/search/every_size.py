"""Any solver on a problem that leaves the input size open: one size after the other, and the best of all answers.

What a block costs depends on the input size, so costs add up only where that is fixed. The best network of all sizes is
the best of those that are best at theirs, so nothing is lost: what is proven for every size is proven for all.
"""

from __future__ import annotations

from dataclasses import replace

from deploynas.errors import GateError
from deploynas.progress import OnProgress, silent
from deploynas.search.feasibility import require_feasible
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution, load_solver


def solve(
    problem: Problem, solver_name: str = "exact", seed: int = 0, top: int = 1, on_progress: OnProgress = silent
) -> list[Solution]:
    """The best networks, best first, as the solver of that name finds them."""
    solver, apart = load_solver(solver_name, seed), problem.each_size()
    if len(apart) == 1:
        return solver.solve(apart[0], top, on_progress)
    require_feasible(problem)  # says what is in the way if no size has a network within the limits
    answers = list[list[Solution]]()
    for i, one in enumerate(apart):

        def advance(fraction: float, what: str, i: int = i) -> None:
            on_progress((i + fraction) / len(apart), what)

        try:
            answers.append(solver.solve(one, top, advance))
        except GateError:
            continue  # this size has none
    return _best(answers, top)


def _best(answers: list[list[Solution]], top: int) -> list[Solution]:
    """Of the answers for every size; proven if all of them are."""
    found = sorted((solution for answer in answers for solution in answer), key=lambda solution: -solution.score)[:top]
    if all(solution.optimal for answer in answers for solution in answer):
        return found
    bounds = [None if best.gap is None else best.score + best.gap for best, *_ in answers]
    known = [bound for bound in bounds if bound is not None]
    most = max(known) if len(known) == len(bounds) else None
    return [replace(solution, optimal=False, gap=None if most is None else most - solution.score) for solution in found]
