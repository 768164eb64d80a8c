"""Random networks, also within limits: those that were drawn within them, then others that were changed until they are.

Every decision is drawn uniformly. A network over a budget takes over decisions of one within all limits, in a random
order, until it is within them too: with tight budgets, where chance finds nothing, this still gives random networks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deploynas.errors import GateError
from deploynas.search.feasibility import require_feasible
from deploynas.search.integer_form import networks_within
from deploynas.search.networks import Evaluator, Networks
from deploynas.search.problem import Problem
from deploynas.space import Architecture

ROUNDS = 100  # of as many draws as networks are wanted, before others are changed until they fit


def random_networks_within(problem: Problem, count: int, seed: int = 0) -> list[Architecture]:
    """`count` different networks within all limits, or as many as there are.

    If there is none, a `GateError` that says why.
    """
    require_feasible(problem)
    rng = np.random.default_rng((seed, 7))
    found = dict[Architecture, None]()
    for _ in range(ROUNDS):
        drawn = problem.space.architectures(problem.draw(count, rng))
        found |= dict.fromkeys(network for network in drawn if problem.allows(network))
        if len(found) >= count:
            return list(found)[:count]
    feasible = list(_feasible_sizes(problem))
    for apart, inside in feasible:
        evaluator = Evaluator(apart)
        people = drawn_within(evaluator, rng, count, inside)
        found |= dict.fromkeys(apart.space.architectures(people.rows(evaluator.decisions)))
    for apart, _ in feasible:
        if len(found) < count:  # chance finds no more: the integer form names those that are left
            found |= dict.fromkeys(networks_within(apart, count))
    return list(filter(problem.allows, found))[:count]


def _feasible_sizes(problem: Problem) -> Iterator[tuple[Problem, Architecture]]:
    """The problem apart for every input size at which some network is within all limits, and one that is."""
    for apart in problem.each_size():
        try:
            yield apart, require_feasible(apart)
        except GateError:
            continue


def drawn_within(evaluator: Evaluator, rng: np.random.Generator, count: int, inside: Architecture) -> Networks:
    """Random networks; those over a budget take over decisions of one that is not, until they are not."""
    rescue = Networks.from_rows(evaluator.decisions, evaluator.problem.space.rows([inside]))
    people = drawn_networks(evaluator, rng, count)
    decisions = people.configs[0].size + people.depths[0].size
    urn = rng.permuted(np.tile(np.arange(decisions), (count, 1)), axis=1)
    for turn in range(decisions):
        over = ~evaluator.within(people)
        if not over.any():
            break
        take = over[:, None] & (urn == turn)
        people = blended(people, rescue, take)
    return people


def drawn_networks(evaluator: Evaluator, rng: np.random.Generator, count: int) -> Networks:
    """Whatever they cost."""
    return Networks.from_rows(evaluator.decisions, evaluator.problem.draw(count, rng))


def blended(these: Networks, those: Networks, take: np.ndarray) -> Networks:
    """Decisions of `those` where `take[n][decision]`, of `these` elsewhere; configurations first, then depths."""
    split = these.configs[0].size
    configs = np.where(take[:, :split].reshape(len(take), *these.configs.shape[1:]), those.configs, these.configs)
    return Networks(configs, np.where(take[:, split:], those.depths, these.depths))
