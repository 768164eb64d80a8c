"""What a search hands back: a network, its predicted accuracy and costs, and how far to trust those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploynas.costs import Costs
from deploynas.search.objective import Predictor
from deploynas.search.problem import Limit, Problem
from deploynas.search.solver import Solution, load_solver
from deploynas.space import Architecture, Space


@dataclass(frozen=True)
class LimitUse:
    """How much of one budget a network uses."""

    name: str
    predicted: float
    budget: float
    relative_error: float | None  # the validated mean error of the latency table; None: not a measured table

    @property
    def is_latency(self) -> bool:
        return self.name.startswith("latency_ms")


@dataclass(frozen=True)
class SearchResult:
    """One network. Accuracy is a fraction, 0..1."""

    architecture: Architecture
    accuracy: float
    accuracy_se: float | None  # implied by the standard errors of the estimator; None: it has none
    costs: Costs
    limits: tuple[LimitUse, ...]
    solver: str
    optimal: bool
    gap: float | None

    @property
    def latency_ms(self) -> float | None:
        """On the first device of the limits."""
        return next((use.predicted for use in self.limits if use.is_latency), None)


def describe(problem: Problem, estimator: Predictor, solution: Solution) -> SearchResult:
    architecture = solution.architecture
    standard_error = getattr(estimator, "predict_se", None)
    return SearchResult(
        architecture,
        solution.accuracy,
        # the same space may go by another name there
        standard_error(estimator.space.architecture(architecture.choices)) if standard_error else None,
        Costs.of(problem.space, architecture),
        tuple(LimitUse(c.name, c.of(architecture), c.budget, c.relative_error) for c in problem.costs),
        solution.solver,
        solution.optimal,
        solution.gap,
    )


def one_each(
    space: Space,
    estimator: Predictor,
    devices: Sequence[Limit],
    common: Sequence[Limit] = (),
    solver: str = "exact",
    seed: int = 0,
) -> tuple[SearchResult, ...]:
    """The best network of every device, each under its own latency limit and the common ones."""
    # named as in the joint problem, where two tables of one device are told apart
    problem = Problem.of(space, estimator, [*devices, *common])
    results = []
    for cost in problem.costs[: len(devices)]:
        others = [c.name for c in problem.costs[: len(devices)] if c.name != cost.name]
        alone = problem.without(others)
        results.append(describe(alone, estimator, load_solver(solver, seed).solve(alone)[0]))
    return tuple(results)
