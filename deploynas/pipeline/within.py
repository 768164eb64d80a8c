"""The limits of a search that only ranks networks: every table with its budget in milliseconds, and resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deploynas.errors import InputError
from deploynas.pipeline.goal import AtMost, Goal
from deploynas.pipeline.search_request import BudgetedTable
from deploynas.search.problem import Limit


@dataclass(frozen=True)
class Within:
    """What networks are held to."""

    tables: Sequence[BudgetedTable] = ()
    resources: Sequence[Limit] = ()

    @classmethod
    def of(cls, tables: Sequence[BudgetedTable], resources: Sequence[Limit], goal: Goal | None = None) -> Within:
        """Every table needs its budget; the goal gives the only table one."""
        if isinstance(goal, AtMost) and len(tables) == 1 and tables[0].budget_ms is None:
            tables, goal = [replace(tables[0], budget_ms=goal.latency_ms)], None
        if isinstance(goal, AtMost):
            raise InputError("`--max-latency-ms` is for one `--latency TABLE` without a budget of its own")
        if goal is not None:
            raise InputError(
                "the search only ranks networks, so a budget does not follow from an accuracy",
                hint="give one: `--latency TABLE:MS`, or `--max-latency-ms`",
            )
        for table in tables:
            if table.budget_ms is None:
                raise InputError(
                    f"`--latency {table.path}` has no budget", hint=f"`--latency {table.path}:10` for 10 ms"
                )
        return cls(tables, resources)

    @property
    def limits(self) -> list[Limit]:
        latencies = [Limit(table.table, table.budget_ms) for table in self.tables if table.budget_ms is not None]
        return [*latencies, *self.resources]
