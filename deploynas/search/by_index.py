"""A score of one sum behind a link, for solvers that know sums: they maximise the sum, then the link is asked.

The link never falls, so the best network by its index is the best by its score, and the next best the next.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deploynas.progress import OnProgress
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution, Solver
from deploynas.space.coefficients import OneIndexObjective


def solve_by_index(
    solver: Solver, problem: Problem, objective: OneIndexObjective, top: int, on_progress: OnProgress
) -> list[Solution]:
    found = solver.solve(replace(problem, objective=objective.index), top, on_progress)
    return [_linked(solution, objective) for solution in found]


def _linked(solution: Solution, objective: OneIndexObjective) -> Solution:
    """What is proven about the index holds for the score: at most the link's value at the bound of the index."""
    most = solution.score + (solution.gap or 0.0)
    score, bound = (float(value) for value in objective.linked(np.array([solution.score, most])))
    return replace(solution, score=score, gap=None if solution.gap is None else bound - score)
