"""Evolutionary search with the paper's settings: for estimators that can only be asked, and as a yardstick.

Each generation keeps the best quarter as parents; half of the children are mutated parents, half are crossed
ones. A child over a budget is rejected and drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from deploynas.progress import OnProgress, silent
from deploynas.search.feasibility import require_feasible
from deploynas.search.neighbours import best_nearby
from deploynas.search.networks import Evaluator, Networks, join
from deploynas.search.problem import Problem
from deploynas.search.random_networks import blended, drawn_networks, drawn_within
from deploynas.search.solver import Solution
from deploynas.space.coefficients import Objective

MAX_DRAWS = 20  # of a generation's children; what is then still missing are copies of parents


@dataclass(frozen=True)
class Evolution:
    handles: ClassVar = (Objective,)  # all it does is ask

    seed: int = 0
    population: int = 100
    generations: int = 500
    mutation_probability: float = 0.1
    parent_ratio: float = 0.25
    mutation_ratio: float = 0.5

    def solve(self, problem: Problem, top: int = 1, on_progress: OnProgress = silent) -> list[Solution]:
        rng = np.random.default_rng(self.seed)
        evaluator = Evaluator(problem)
        people = drawn_within(evaluator, rng, self.population, require_feasible(problem))
        worth = evaluator.scores(people)
        kept = max(2, round(self.parent_ratio * self.population))
        elders = max(kept, top)  # the best ever seen, each once
        for generation in range(self.generations):
            order = _best_distinct(evaluator, people, worth, elders)
            people, worth = people[order], worth[order]
            parents = people[:kept]
            mutants = round(self.mutation_ratio * self.population)
            children = join(
                self._feasible(evaluator, rng, parents, mutants, self._mutated),
                self._feasible(evaluator, rng, parents, self.population - mutants, self._crossed),
            )
            people, worth = join(people, children), np.concatenate([worth, evaluator.scores(children)])
            on_progress((generation + 1) / self.generations, f"generation {generation + 1}")
        ranked = evaluator.best_distinct(people, top)
        if len(ranked) < top:
            ranked = evaluator.best_distinct(best_nearby(evaluator, people, top), top)
        return [Solution(arch, score, "evolution", optimal=False, gap=None) for score, arch in ranked]

    def _feasible(
        self, evaluator: Evaluator, rng: np.random.Generator, parents: Networks, count: int, draw: _Draw
    ) -> Networks:
        found: list[Networks] = []
        missing = count
        for _ in range(MAX_DRAWS):
            children = draw(evaluator, rng, parents, missing)
            found.append(children[evaluator.within(children)])
            missing -= len(found[-1])
            if not missing:
                break
        return join(*found, parents[rng.integers(len(parents), size=missing)])

    def _mutated(self, evaluator: Evaluator, rng: np.random.Generator, parents: Networks, count: int) -> Networks:
        chosen = parents[rng.integers(len(parents), size=count)]
        fresh = drawn_networks(evaluator, rng, count)
        take = rng.random((count, chosen.configs[0].size + chosen.depths[0].size)) < self.mutation_probability
        return blended(chosen, fresh, take)

    def _crossed(self, evaluator: Evaluator, rng: np.random.Generator, parents: Networks, count: int) -> Networks:
        mothers, fathers = rng.integers(len(parents), size=(2, count))
        take = rng.random((count, parents.configs[0].size + parents.depths[0].size)) < 0.5
        return blended(parents[mothers], parents[fathers], take)


class _Draw(Protocol):
    def __call__(self, evaluator: Evaluator, rng: np.random.Generator, parents: Networks, count: int) -> Networks: ...


def _best_distinct(evaluator: Evaluator, people: Networks, worth: np.ndarray, count: int) -> np.ndarray:
    """Positions of the best, best first, each network once."""
    first = evaluator.distinct(people)
    return first[np.argsort(-worth[first], kind="stable")][:count]
