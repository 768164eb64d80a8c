"""What every solver is: a class with `solve`, in a file of its own, and a line in `SOLVERS`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Problem
from deploynas.space import Architecture
from deploynas.space.coefficients import Objective, SeparableObjective

SOLVERS = {
    "exact": "deploynas.search.exact:Exact",
    "milp": "deploynas.search.milp:Milp",
    "bcfw": "deploynas.search.bcfw:Bcfw",
    "evolution": "deploynas.search.evolution:Evolution",
    "best-of": "deploynas.search.best_of:BestOf",
}


@dataclass(frozen=True)
class Solution:
    """A network within every limit, and what is proven about it."""

    architecture: Architecture
    score: float
    solver: str
    optimal: bool  # proven, as the best or the next best that was asked for
    gap: float | None  # no network can score higher than this by more; None: nothing is known


class Solver(Protocol):
    handles: ClassVar[tuple[type[Objective], ...]]  # the kinds of objective that it can maximise

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        """The best networks found, best first: `top` of them, or as many as there are.

        Never one over a budget. If no network is within all limits, a `GateError` that says why.
        """
        ...


def load_solver(name: str, seed: int = 0) -> Solver:
    """A solver by name; `seed` is for those that draw random numbers."""
    if name not in SOLVERS:
        raise InputError(f"no solver `{name}`", hint=f"one of {', '.join(SOLVERS)}")
    module, kind = SOLVERS[name].split(":")
    return cast(Solver, getattr(importlib.import_module(module), kind)(seed=seed))


def separable(problem: Problem, who: str) -> SeparableObjective:
    """The objective of a problem that separates by stage; an error that names the alternatives otherwise."""
    if isinstance(problem.objective, SeparableObjective):
        return problem.objective
    raise cannot_maximise(who, problem.objective)


def cannot_maximise(who: str, objective: Objective) -> InputError:
    """An error that names the solvers which can."""
    able = [name for name in SOLVERS if isinstance(objective, load_solver(name).handles)]
    return InputError(f"{who} cannot maximise {objective.form}", hint=f"use `--solver {'` or `--solver '.join(able)}`")
