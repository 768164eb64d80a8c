"""One latency budget for several networks that answer together.

One after the other (`serial`) they take the sum of their latencies; at the same time (`parallel`), each on processors
of its own, as long as the slowest. Either is at most the budget, by the numbers that the latency table predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deploynas.errors import GateError, InputError
from deploynas.search.frontier import problem_frontier
from deploynas.search.problem import Problem, table_cost
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Cost, Priced, SeparableObjective

Running = Literal["serial", "parallel"]
LARGEST = 5  # members


@dataclass(frozen=True)
class JointBudget:
    cost: Cost  # of one network, limited to the budget: no member may take more in either case
    running: Running

    @classmethod
    def of(cls, space: Space, table: Priced, budget_ms: float, running: Running) -> JointBudget:
        if running not in ("serial", "parallel"):
            raise InputError(f"networks run `serial` or `parallel`, not `{running}`")
        if space.sizes:
            raise InputError(
                f"space `{space.name}` leaves the input size open, and members of an ensemble share their images",
                hint="copy its YAML file and give `input` one size",
            )
        return cls(table_cost(space, table, budget_ms), running)

    @property
    def budget_ms(self) -> float:
        return self.cost.budget

    def latency_ms(self, networks: Sequence[Architecture]) -> float:
        return self.joined([self.cost.total(network) for network in networks])

    def joined(self, latencies_ms: Sequence[float]) -> float:
        """Of networks that take so long each."""
        return sum(latencies_ms) if self.running == "serial" else max(latencies_ms)

    def allows(self, networks: Sequence[Architecture]) -> bool:
        return self.latency_ms(networks) <= self.budget_ms

    def require_feasible(self, space: Space, members: int) -> None:
        """A `GateError` if even the fastest networks take too long."""
        fastest = Problem(space, SeparableObjective.nothing(space), (replace(self.cost, budget=float("inf")),))
        least = float(problem_frontier(fastest).latencies_ms[0])
        together = self.joined([least] * members)
        if together > self.budget_ms:
            raise GateError(
                f"{members} networks ({self.running}) take {together:.4g} ms even if each is the fastest, "
                f"the budget is {self.budget_ms:.4g} ms",
                hint="fewer members, or a larger budget",
            )


def require_members(members: int) -> None:
    """Two to five: beyond, what a supernet says about ensembles is not worth a search."""
    if members < 2:
        raise InputError(
            f"an ensemble has two members or more, got {members}", hint="without `--ensemble`: one network"
        )
    if members > LARGEST:
        raise InputError(
            f"an ensemble has at most {LARGEST} members here, got {members}: inherited weights do not rank larger ones "
            "(Shu et al. 2022 find a rank correlation of -0.12 with ensembles of 7 that were trained)",
            hint=f"`--ensemble {LARGEST}` or fewer",
        )
