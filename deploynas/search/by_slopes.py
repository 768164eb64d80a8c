"""A score of several sums behind a link, for solvers that know one: they maximise a weighted sum, by the link's slopes.

That is what Frank-Wolfe does with any objective, linearise it where the last answer was. The link is not linear, so the
answers are weighed anew until the best network found no longer changes; nothing is proven.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deploynas.progress import OnProgress
from deploynas.search.neighbours import best_nearby
from deploynas.search.networks import Evaluator, Networks
from deploynas.search.problem import Problem
from deploynas.search.solver import Solution, Solver
from deploynas.space import Architecture
from deploynas.space.coefficients import Exit, IndexedObjective, SeparableObjective, Walk

ROUNDS = 8  # it has stopped moving long before


def solve_by_slopes(
    solver: Solver, problem: Problem, objective: IndexedObjective, top: int, on_progress: OnProgress
) -> list[Solution]:
    found: dict[Architecture, Solution] = {}
    at = np.array([index.base for index in objective.indices])
    for turn in range(ROUNDS):
        best = max((s.score for s in found.values()), default=-np.inf)
        for solution in solver.solve(replace(problem, objective=_weighted(objective, at)), top):
            score = problem.score(solution.architecture)
            found.setdefault(solution.architecture, replace(solution, score=score, optimal=False, gap=None))
        leader = max(found.values(), key=lambda solution: solution.score)
        on_progress((turn + 1) / ROUNDS, f"slopes taken {turn + 1} times")
        if leader.score <= best:
            break
        at = np.array([index.score(leader.architecture) for index in objective.indices])
    evaluator = Evaluator(problem)
    networks = Networks.from_rows(evaluator.decisions, problem.space.rows(list(found)))
    ranked = evaluator.best_distinct(best_nearby(evaluator, networks, top), top)
    return [replace(leader, architecture=architecture, score=score) for score, architecture in ranked]


def _weighted(objective: IndexedObjective, at: np.ndarray) -> SeparableObjective:
    """The sum of the indices, each by how fast the score rises with it; equally where the score is flat."""
    slopes = objective.link.slopes(at[None])[0]
    weights = slopes / slopes.max() if slopes.max() > 0 else np.ones(len(at))
    stages = []
    for walks in zip(*(index.stages for index in objective.indices), strict=True):
        own = [walk for (walk,) in walks]
        value = np.sum([w * walk.value for w, walk in zip(weights, own, strict=True)], axis=0)
        exits = [
            Exit(leaves[0].depth_index, leaves[0].depth, float(weights @ [leave.bonus for leave in leaves]))
            for leaves in zip(*(walk.exits for walk in own), strict=True)
        ]
        stages.append((Walk(value, tuple(exits)),))
    return SeparableObjective(float(weights @ [index.base for index in objective.indices]), tuple(stages))
