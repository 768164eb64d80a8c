"""Many networks at once as arrays, and what they are worth and cost: for solvers that look at thousands.

Stages are padded to the same number of blocks and depths. Sums run in network order, as everywhere in the
search (see `problem`): blocks that take no part add 0.0, which changes nothing, so the costs are those of
`Cost.of`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.search.objective import Coupled, Encoding, Separable
from deploynas.search.problem import Problem
from deploynas.space import Architecture, Space


@dataclass(frozen=True)
class Networks:
    """n networks: a configuration for every block, also for those beyond the depth, and a depth for every
    stage.
    """

    configs: np.ndarray  # [n][stage][block]
    depths: np.ndarray  # [n][stage]: index into the stage's depths

    def __len__(self) -> int:
        return len(self.configs)

    def __getitem__(self, where: np.ndarray | slice) -> Networks:
        return Networks(self.configs[where], self.depths[where])

    def architecture(self, space: Space, n: int) -> Architecture:
        depths = [stage.depths[i] for stage, i in zip(space.stages, self.depths[n], strict=True)]
        return space.architecture([self.configs[n, s, :depth].tolist() for s, depth in enumerate(depths)])


def join(*parts: Networks) -> Networks:
    return Networks(np.concatenate([p.configs for p in parts]), np.concatenate([p.depths for p in parts]))


def random_networks(space: Space, rng: np.random.Generator, count: int) -> Networks:
    """Every decision uniform and independent."""
    blocks = max(stage.max_depth for stage in space.stages)
    configs = np.zeros((count, len(space.stages), blocks), dtype=np.int64)
    depths = np.zeros((count, len(space.stages)), dtype=np.int64)
    for s, stage in enumerate(space.stages):
        configs[:, s, : stage.max_depth] = rng.integers(len(stage.configs), size=(count, stage.max_depth))
        depths[:, s] = rng.integers(len(stage.depths), size=count)
    return Networks(configs, depths)


def from_architectures(space: Space, architectures: list[Architecture]) -> Networks:
    blocks = max(stage.max_depth for stage in space.stages)
    configs = np.zeros((len(architectures), len(space.stages), blocks), dtype=np.int64)
    depths = np.zeros((len(architectures), len(space.stages)), dtype=np.int64)
    for n, architecture in enumerate(architectures):
        for s, choice in enumerate(architecture.choices):
            configs[n, s, : len(choice)] = choice
            depths[n, s] = space.stages[s].depths.index(len(choice))
    return Networks(configs, depths)


class Evaluator:
    """Accuracies and costs of many networks of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, space = problem, problem.space
        stages = range(len(space.stages))
        self.stages, self.blocks = len(space.stages), max(stage.max_depth for stage in space.stages)
        self.options = max(len(stage.configs) for stage in space.stages)
        self.exits = max(len(stage.depths) for stage in space.stages)
        shape = (self.stages, self.blocks, self.options)
        self.allowed = np.zeros(shape, dtype=bool)
        self.block_cost = np.zeros((len(problem.costs), *shape))
        self.takes_part = np.zeros((self.stages, self.exits, self.blocks), dtype=bool)
        for s in stages:
            rows, columns = problem.allowed[s].shape
            self.allowed[s, :rows, :columns] = problem.allowed[s]
            for i, depth in enumerate(space.stages[s].depths):
                self.takes_part[s, i, :depth] = True
            for row, cost in enumerate(problem.costs):
                self.block_cost[row, s, :rows, :columns] = cost.blocks[s]
        self.possible = np.asarray(self.allowed.any(axis=2))  # [stage][block]: there is something to choose
        blocked = self.takes_part & ~self.possible[:, None, :]
        self.usable_exit = np.asarray(self.takes_part.any(axis=2) & ~blocked.any(axis=2))
        self.additive = [row for row, cost in enumerate(problem.costs) if cost.kind == "sum"]
        if isinstance(problem.objective, Separable):
            self.value, self.bonus = self._coefficients(problem.objective)

    def _coefficients(self, objective: Separable) -> tuple[np.ndarray, np.ndarray]:
        """value[stage][depth][block][configuration] (0 beyond the depth) and bonus[stage][depth]."""
        value = np.zeros((self.stages, self.exits, self.blocks, self.options))
        bonus = np.zeros((self.stages, self.exits))
        for s, walks in enumerate(objective.stages):
            for walk in walks:
                for leave in walk.exits:
                    bonus[s, leave.depth_index] = leave.bonus
                    columns = walk.value.shape[1]
                    value[s, leave.depth_index, : leave.depth, :columns] = walk.value[: leave.depth]
        return value, bonus

    def accuracies(self, networks: Networks) -> np.ndarray:
        objective = self.problem.objective
        if isinstance(objective, Separable):
            total = np.full(len(networks), objective.base)
            for s in range(self.stages):
                depth = networks.depths[:, s]
                for b in range(self.blocks):
                    total += self.value[s, depth, b, networks.configs[:, s, b]]
                total += self.bonus[s, depth]
            return total
        if isinstance(objective, Coupled):
            return self._coupled(objective, networks)
        space = self.problem.space
        return np.array([objective.accuracy(networks.architecture(space, n)) for n in range(len(networks))])

    def _coupled(self, objective: Coupled, networks: Networks) -> np.ndarray:
        encoding, columns = Encoding(self.problem.space), []
        for s, rows in enumerate(encoding.block_row):
            depth = networks.depths[:, s]
            for b, start in enumerate(rows):
                columns.append(start + np.where(self.takes_part[s, depth, b], networks.configs[:, s, b], 0))
        columns += [start + networks.depths[:, s] for s, start in enumerate(encoding.depth_row)]
        entries = np.stack(columns, axis=1)
        pairs = objective.matrix[entries[:, :, None], entries[:, None, :]].sum(axis=(1, 2))
        return objective.base + objective.linear[entries].sum(axis=1) + pairs

    def costs(self, networks: Networks) -> np.ndarray:
        """[limit][n]."""
        found = []
        for cost, table in zip(self.problem.costs, self.block_cost, strict=True):
            total = np.zeros(len(networks))
            for s in range(self.stages):
                for b in range(self.blocks):
                    part = self.takes_part[s, networks.depths[:, s], b]
                    block = np.where(part, table[s, b, networks.configs[:, s, b]], 0.0)
                    total = np.maximum(total, block) if cost.kind == "max" else total + block
            found.append(np.maximum(cost.fixed, total) if cost.kind == "max" else cost.fixed + total)
        return np.array(found).reshape(len(self.problem.costs), len(networks))

    def within(self, networks: Networks) -> np.ndarray:
        """Which networks keep every limit."""
        budgets = np.array([cost.budget for cost in self.problem.costs])
        return np.asarray((self.costs(networks) <= budgets[:, None]).all(axis=0))

    def best_distinct(self, networks: Networks, count: int) -> list[tuple[float, Architecture]]:
        """The best of the networks within all limits, each architecture once, best first."""
        inside = networks[self.within(networks)]
        accuracies = self.accuracies(inside)
        found: dict[Architecture, float] = {}
        for n in np.argsort(-accuracies, kind="stable"):
            found.setdefault(inside.architecture(self.problem.space, int(n)), float(accuracies[n]))
            if len(found) == count:
                break
        return [(accuracy, architecture) for architecture, accuracy in found.items()]
