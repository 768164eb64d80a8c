"""What a search hands back: a network, its predicted score and costs, and how far to trust those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploynas.costs import Costs
from deploynas.search.problem import Limit, Problem
from deploynas.search.solver import Solution, load_solver
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Estimator, Scale, Unit


@dataclass(frozen=True)
class LimitUse:
    """How much of one budget a network uses."""

    name: str
    predicted: float
    budget: float
    relative_error: float | None  # the validated mean error of the latency table; None: not a measured table
    unit: Unit


@dataclass(frozen=True)
class SearchResult:
    """One network, and the score that was maximised."""

    architecture: Architecture
    score: float
    scale: Scale
    score_se: float | None  # implied by the standard errors of the estimator; None: it has none
    costs: Costs
    limits: tuple[LimitUse, ...]
    solver: str
    optimal: bool
    gap: float | None  # of the score

    @property
    def accuracy(self) -> float | None:
        """The score as a fraction, 0..1; None if it only ranks."""
        return self.score if self.scale == "accuracy" else None

    @property
    def accuracy_se(self) -> float | None:
        return self.score_se if self.scale == "accuracy" else None

    @property
    def latency_ms(self) -> float | None:
        """On the first device of the limits."""
        return next((use.predicted for use in self.limits if use.unit == "ms"), None)


def describe(problem: Problem, estimator: Estimator, solution: Solution) -> SearchResult:
    architecture = solution.architecture
    return SearchResult(
        architecture,
        solution.score,
        problem.objective.scale,
        estimator.predict_se(architecture),
        Costs.of(problem.space, architecture),
        tuple(LimitUse(c.name, c.total(architecture), c.budget, c.relative_error, c.unit) for c in problem.costs),
        solution.solver,
        solution.optimal,
        solution.gap,
    )


def one_each(
    space: Space,
    estimator: Estimator,
    devices: Sequence[Limit],
    common: Sequence[Limit] = (),
    solver: str = "exact",
    seed: int = 0,
) -> tuple[SearchResult, ...]:
    """The best network of every device, each under its own latency limit and the common ones."""
    # named as in the joint problem, where two tables of one device are told apart
    problem = Problem.build(space, estimator, [*devices, *common])
    results = []
    for cost in problem.costs[: len(devices)]:
        others = [c.name for c in problem.costs[: len(devices)] if c.name != cost.name]
        alone = problem.without(others)
        results.append(describe(alone, estimator, load_solver(solver, seed).solve(alone)[0]))
    return tuple(results)
