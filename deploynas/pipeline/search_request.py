"""A question to the search, with the files it is about. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.errors import InputError
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.goal import AtMost, Goal, NearBest
from deploynas.pipeline.limits import require_budget
from deploynas.search.problem import Limit, Problem
from deploynas.space import Space


@dataclass(frozen=True)
class BudgetedTable:
    """A latency table as `--latency` gives it."""

    path: Path
    table: LatencyTable
    budget_ms: float | None = None

    @classmethod
    def parse(cls, text: str) -> BudgetedTable:
        """`table.json:10` or `table.json`; a colon may also belong to the path."""
        place, colon, given = text.rpartition(":")
        if not colon or Path(text).exists():
            return cls(Path(text), LatencyTable.load(text))
        try:
            budget = require_budget(float(given), f"the budget of `--latency {text}`")
        except ValueError:
            raise InputError(
                f"`--latency {text}`: `{given}` is not a budget in milliseconds",
                hint="like `--latency table.json:10`",
            ) from None
        return cls(Path(place), LatencyTable.load(place), budget)


@dataclass(frozen=True)
class SolverChoice:
    name: str = "exact"
    seed: int = 0  # for solvers that draw random numbers
    top: int = 1  # how many networks, best first


@dataclass(frozen=True)
class SearchRequest:
    """What is maximised within what, and how; the goal is for the one table without a budget of its own."""

    space: Space
    estimator: StoredEstimator
    estimator_path: Path  # or the name of one that ships
    tables: Sequence[BudgetedTable]
    resources: Sequence[Limit]
    solver: SolverChoice = field(default_factory=SolverChoice)
    goal: Goal | None = None

    @classmethod
    def open(
        cls,
        estimator_path: Path,
        tables: Sequence[BudgetedTable],
        resources: Sequence[Limit],
        solver: SolverChoice,
        space_name: str | None = None,
        goal: Goal | None = None,
    ) -> SearchRequest:
        if not tables and not resources:
            raise InputError("nothing limits the network", hint="`--latency TABLE:MS`, `--max-params N`, ...")
        if goal is not None and (len(tables) != 1 or tables[0].budget_ms is not None):
            raise InputError(
                "`--max-latency-ms`, `--min-accuracy` and `--within` are for one `--latency TABLE` without a budget of "
                "its own",
                hint="give every table its budget: `--latency TABLE:MS`",
            )
        estimator = load_estimator(estimator_path)
        space = Space.load(space_name) if space_name else estimator.space
        return cls(space, estimator, estimator_path, tables, resources, solver, goal)

    @property
    def wanted(self) -> Goal | None:
        """The goal on the only table; None if there are several, or none."""
        if len(self.tables) != 1:
            return None
        budget_ms = self.tables[0].budget_ms
        return AtMost(budget_ms) if budget_ms is not None else self.goal or NearBest()

    def at_most(self, latency_ms: float) -> SearchRequest:
        """The same question with a budget for its only table."""
        (table,) = self.tables
        return replace(self, tables=[replace(table, budget_ms=latency_ms)], goal=None)

    def devices(self) -> list[Limit]:
        """The latency limits; every table must have its budget."""
        for table in self.tables:
            if table.budget_ms is None:
                raise InputError(
                    f"`--latency {table.path}` has no budget, and several tables need one each",
                    hint=f"`--latency {table.path}:10` for 10 ms",
                )
        return [Limit(table.table, table.budget_ms) for table in self.tables if table.budget_ms is not None]

    def problem(self) -> Problem:
        return Problem.build(self.space, self.estimator, [*self.devices(), *self.resources])
