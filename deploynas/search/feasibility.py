"""Whether limits can be met, and an answer when they cannot: which limit binds, and what comes closest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.errors import GateError
from deploynas.search.integer_form import nearest_network
from deploynas.search.networks import Evaluator, Networks
from deploynas.search.problem import Problem
from deploynas.space import Architecture
from deploynas.space.coefficients import Cost


@dataclass(frozen=True)
class CostRange:
    """What networks cost under one limit: the cheapest, the median of random ones, the dearest."""

    cost: Cost
    smallest: float
    median: float
    heaviest: float
    share_within: float  # of random networks; every decision uniform


def require_feasible(problem: Problem) -> Architecture:
    """A network within all limits, or a `GateError` that names the limit in the way."""
    for cost in problem.costs:
        cheapest = cheapest_network(problem.without([c.name for c in problem.costs]), cost)
        if not cost.allows(cheapest):
            raise _out_of_reach(cost, cheapest)
    if _forbidden_everywhere(problem):
        raise GateError(
            "no network is within all limits on memory at once",
            hint="raise one of them, or leave it out",
        )
    for cost in problem.additive:
        cheapest = cheapest_network(problem, cost)
        if not cost.allows(cheapest):
            names = ", ".join(c.name for c in problem.costs if c.kind == "max")
            raise _out_of_reach(cost, cheapest, f" among the networks within {names}")
        if problem.allows(cheapest):
            return cheapest
    return _together(problem)


def cheapest_network(problem: Problem, cost: Cost) -> Architecture:
    """The least costly network that limits on a maximum allow (there must be one).

    Costs are not negative, so fewest blocks, each with its cheapest configuration.
    """
    return min(_extremes(problem, cost, largest=False), key=cost.total)


def dearest_network(problem: Problem, cost: Cost) -> Architecture:
    """The most costly network that limits on a maximum allow (there must be one)."""
    return max(_extremes(problem, cost, largest=True), key=cost.total)


def cost_ranges(problem: Problem, networks: int = 4096, seed: int = 0) -> list[CostRange]:
    """What every limit's cost ranges over in the whole space, before anything is solved."""
    free = problem.without([cost.name for cost in problem.costs])
    decisions = problem.space.decisions
    rows = decisions.draw(networks, np.random.default_rng(seed))
    ranges = []
    for cost, costs in zip(problem.costs, _costs(problem, rows), strict=True):
        ranges.append(
            CostRange(
                cost,
                cost.total(cheapest_network(free, cost)),
                float(np.median(costs)),
                cost.total(dearest_network(free, cost)),
                float(np.mean(costs <= cost.budget)),
            )
        )
    return ranges


def _costs(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """[limit][network]; each at its own input size, which is the last column where that is open."""
    found = np.empty((len(problem.costs), len(rows)))
    for apart in problem.each_size():
        own = np.full(len(rows), True) if apart.size_index is None else rows[:, -1] == apart.size_index
        found[:, own] = Evaluator(apart).costs(Networks.from_rows(problem.space.decisions, rows[own]))
    return found


def _extremes(problem: Problem, cost: Cost, largest: bool) -> list[Architecture]:
    """One for every input size at which limits on a maximum allow any."""
    return [
        _extreme(apart, cost if apart is problem else cost.at(i), largest)
        for i, apart in enumerate(problem.each_size())
        if not _forbidden_everywhere(apart)
    ]


def _extreme(problem: Problem, cost: Cost, largest: bool) -> Architecture:
    choices = []
    for s in range(len(problem.space.decisions.groups)):
        usable = _usable_depths(problem, s)
        costs = np.where(problem.allowed[s], cost.blocks[s], -np.inf if largest else np.inf)
        picked = costs.argmax(axis=1) if largest else costs.argmin(axis=1)
        choices.append(picked[: usable[-1] if largest else usable[0]])
    return problem.space.architecture(choices)


def _usable_depths(problem: Problem, s: int) -> list[int]:
    """The depths of a stage whose blocks all have something allowed to choose."""
    blocks = int(np.append(problem.allowed[s].any(axis=1), False).argmin())
    return [depth for depth in problem.space.decisions.groups[s].depths if depth <= blocks]


def _forbidden_everywhere(problem: Problem) -> bool:
    def possible(apart: Problem) -> bool:
        fixed_fits = all(cost.fixed <= cost.budget for cost in apart.costs if cost.kind == "max")
        return fixed_fits and all(_usable_depths(apart, s) for s in range(len(apart.space.decisions.groups)))

    return not any(map(possible, problem.each_size()))


def _together(problem: Problem) -> Architecture:
    """Each limit can be kept alone; can all at once? Minimise the largest cost / budget."""

    def most_over(network: Architecture) -> float:
        return max((c.total(network) / c.budget for c in problem.additive), default=0.0)

    nearest = min(
        (nearest_network(apart) for apart in problem.each_size() if not _forbidden_everywhere(apart)), key=most_over
    )
    if problem.allows(nearest):
        return nearest
    shown = "; ".join(f"{c.name} {show(c.total(nearest))} of {show(c.budget)}" for c in problem.additive)
    over = most_over(nearest)
    raise GateError(
        f"each limit can be met alone but not all together: the network that comes closest needs {shown}",
        hint=f"raise the budgets by {np.ceil(1000 * (over - 1)) / 10:g} % or more, or leave a limit out",
    )


def _out_of_reach(cost: Cost, cheapest: Architecture, among: str = "") -> GateError:
    least = cost.total(cheapest)
    word = "fastest" if cost.unit == "ms" else "smallest"
    return GateError(
        f"{cost.name}: no network is within {show(cost.budget)}; the {word}{among} needs {show(least)}: {cheapest}",
        hint=f"a budget of at least {show(least, up=True)} can be met",
    )


def show(value: float, up: bool = False) -> str:
    """A cost for people: enough digits to be useful, rounded up where it is to be typed as a budget."""
    if value >= 1e6 or float(value).is_integer():
        return f"{int(-(-value // 1)) if up else round(value):,}".replace(",", "_")
    return f"{np.ceil(value * 1e4) / 1e4:.4f}" if up else f"{value:.4g}"
