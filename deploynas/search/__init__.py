"""The search: the most accurate network within every budget, proven, and the paper's solvers beside it.

The package can be called: `deploynas.search(...)` is the function below. This file stays light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from deploynas.callable_module import make_callable
from deploynas.progress import OnProgress, silent

if TYPE_CHECKING:
    from deploynas.search.problem import Limit
    from deploynas.search.result import SearchResult
    from deploynas.space import Space
    from deploynas.space.coefficients import Estimator


@overload
def search(
    space: Space,
    estimator: Estimator,
    limits: Sequence[Limit],
    solver: str = ...,
    top: None = ...,
    *,
    seed: int = ...,
    on_progress: OnProgress = ...,
) -> SearchResult: ...
@overload
def search(
    space: Space,
    estimator: Estimator,
    limits: Sequence[Limit],
    solver: str = ...,
    *,
    top: int,
    seed: int = ...,
    on_progress: OnProgress = ...,
) -> list[SearchResult]: ...
def search(
    space: Space,
    estimator: Estimator,
    limits: Sequence[Limit],
    solver: str = "exact",
    top: int | None = None,
    *,
    seed: int = 0,
    on_progress: OnProgress = silent,
) -> SearchResult | list[SearchResult]:
    """The most accurate network within all limits; with `top` a list of that many, best first.

    Raises `GateError` if no network is within all limits: it names the limit, and the network that comes
    closest.
    """
    from deploynas.errors import InputError
    from deploynas.search.every_size import solve
    from deploynas.search.problem import Problem
    from deploynas.search.result import describe

    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top must be a whole number of at least 1, got {top!r}")
    problem = Problem.build(space, estimator, limits)
    solutions = solve(problem, solver, seed, top or 1, on_progress)
    results = [describe(problem, estimator, solution) for solution in solutions]
    return results if top is not None else results[0]


make_callable(__name__)
