"""What a search hands back: a network, the score that was maximised, the accuracy to expect of it, and its costs.

A score ranks. What to expect of a network is the estimator's to say: where networks with such a score were measured, it
says what they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from deploynas.costs import Costs
from deploynas.search.every_size import solve
from deploynas.search.problem import Limit, Problem
from deploynas.search.solver import Solution
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Estimator, Scale, Unit


class Expected(Protocol):
    """An accuracy (0..1), and how uncertain it is."""

    @property
    def accuracy(self) -> float: ...

    @property
    def se(self) -> float | None: ...

    def interval(self) -> tuple[float, float] | None: ...


@runtime_checkable
class Expecting(Protocol):
    """An estimator that knows what its scores are worth in measured accuracy."""

    def expect(self, architecture: Architecture) -> Expected: ...


@dataclass(frozen=True)
class AccuracyToExpect:
    """One-shot, 0..1: with the weights that a network inherits from the supernet. None: not known."""

    accuracy: float | None
    se: float | None
    interval: tuple[float, float] | None  # 90 % of such networks are within it

    @classmethod
    def of(cls, estimator: Estimator, architecture: Architecture, score: float, scale: Scale) -> AccuracyToExpect:
        """What the estimator says, else the score itself; nothing if the score only ranks."""
        if scale == "ordinal":
            return cls(None, None, None)
        if isinstance(estimator, Expecting):
            found = estimator.expect(architecture)
            return cls(found.accuracy, found.se, found.interval())
        return cls(score, estimator.predict_se(architecture), None)


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
    """One network, the score that was maximised, and the accuracy to expect."""

    architecture: Architecture
    score: float
    scale: Scale
    to_expect: AccuracyToExpect
    costs: Costs
    limits: tuple[LimitUse, ...]
    solver: str
    optimal: bool
    gap: float | None  # of the score

    @property
    def accuracy(self) -> float | None:
        """What to expect, 0..1; None if the score only ranks."""
        return self.to_expect.accuracy

    @property
    def accuracy_se(self) -> float | None:
        return self.to_expect.se

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """That 90 % of such networks are within."""
        return self.to_expect.interval

    @property
    def latency_ms(self) -> float | None:
        """On the first device of the limits."""
        return next((use.predicted for use in self.limits if use.unit == "ms"), None)


def describe(problem: Problem, estimator: Estimator, solution: Solution) -> SearchResult:
    architecture, scale = solution.architecture, problem.objective.scale
    return SearchResult(
        architecture,
        solution.score,
        scale,
        AccuracyToExpect.of(estimator, architecture, solution.score, scale),
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
        results.append(describe(alone, estimator, solve(alone, solver, seed)[0]))
    return tuple(results)
