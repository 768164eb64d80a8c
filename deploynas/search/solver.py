"""What every solver is: a class with `solve`, in a file of its own, and a line in `SOLVERS`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol

from deploynas.errors import InputError
from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Problem
from deploynas.space import Architecture

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
    accuracy: float
    solver: str
    optimal: bool  # proven, as the best or the next best that was asked for
    gap: float | None  # no network can be more accurate than this by more; None: nothing is known


class Solver(Protocol):
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
    return getattr(importlib.import_module(module), kind)(seed=seed)
