"""Many networks at once as arrays, and what they score and cost: for solvers that look at thousands.

Stages are padded to the same number of blocks and depths. Sums run in network order, as everywhere in the
search (see `problem`): blocks that take no part add 0.0, which changes nothing, so the costs are those of
`Cost.total`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.search.problem import Problem
from deploynas.space import Architecture, Decisions
from deploynas.space.coefficients import CoupledObjective, IndexedObjective, SeparableObjective


@dataclass(frozen=True)
class Networks:
    """n networks: a configuration for every block, also for those beyond the depth, and a depth for every
    stage.
    """

    configs: np.ndarray  # [n][stage][block]
    depths: np.ndarray  # [n][stage]: index into the stage's depths

    @classmethod
    def from_rows(cls, decisions: Decisions, rows: np.ndarray) -> Networks:
        groups, blocks = decisions.groups, max(len(group.choices) for group in decisions.groups)
        configs = np.zeros((len(rows), len(groups), blocks), dtype=np.int64)
        for g, group in enumerate(groups):
            first = decisions.column(g, 0)
            configs[:, g, : len(group.choices)] = rows[:, first : first + len(group.choices)]
        return cls(configs, rows[:, : len(groups)].astype(np.int64))

    def rows(self, decisions: Decisions) -> np.ndarray:
        """The inverse of `from_rows`."""
        choices = [self.configs[:, g, : len(group.choices)] for g, group in enumerate(decisions.groups)]
        return np.concatenate([self.depths, *choices], axis=1).astype(decisions.dtype)

    def __len__(self) -> int:
        return len(self.configs)

    def __getitem__(self, where: np.ndarray | slice) -> Networks:
        return Networks(self.configs[where], self.depths[where])


def join(*parts: Networks) -> Networks:
    return Networks(np.concatenate([p.configs for p in parts]), np.concatenate([p.depths for p in parts]))


@dataclass(frozen=True)
class _Sum:
    """The coefficients of a sum that separates by stage, padded."""

    base: float
    value: np.ndarray  # [stage][depth][block][configuration], 0 beyond the depth
    bonus: np.ndarray  # [stage][depth]

    def of(self, networks: Networks) -> np.ndarray:
        total = np.full(len(networks), self.base)
        stages, _, blocks, _ = self.value.shape
        for s in range(stages):
            depth = networks.depths[:, s]
            for b in range(blocks):
                total += self.value[s, depth, b, networks.configs[:, s, b]]
            total += self.bonus[s, depth]
        return total


class Evaluator:
    """Scores and costs of many networks of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.decisions = problem, problem.space.decisions
        groups = self.decisions.groups
        self.stages, self.blocks = len(groups), max(len(group.choices) for group in groups)
        self.options = max(self.decisions.sizes[self.stages :])
        self.exits = max(self.decisions.sizes[: self.stages])
        shape = (self.stages, self.blocks, self.options)
        self.allowed = np.zeros(shape, dtype=bool)
        self.block_cost = np.zeros((len(problem.costs), *shape))
        self.takes_part = np.zeros((self.stages, self.exits, self.blocks), dtype=bool)
        for s, group in enumerate(groups):
            rows, columns = problem.allowed[s].shape
            self.allowed[s, :rows, :columns] = problem.allowed[s]
            for i, depth in enumerate(group.depths):
                self.takes_part[s, i, :depth] = True
            for row, cost in enumerate(problem.costs):
                self.block_cost[row, s, :rows, :columns] = cost.blocks[s]
        self.possible = np.asarray(self.allowed.any(axis=2))  # [stage][block]: there is something to choose
        blocked = self.takes_part & ~self.possible[:, None, :]
        self.usable_exit = np.asarray(self.takes_part.any(axis=2) & ~blocked.any(axis=2))
        self.additive = [row for row, cost in enumerate(problem.costs) if cost.kind == "sum"]
        self._sums: list[_Sum] = []
        if isinstance(problem.objective, SeparableObjective):
            self._sums = [self._sum(problem.objective)]
            self.value, self.bonus = self._sums[0].value, self._sums[0].bonus
        elif isinstance(problem.objective, IndexedObjective):
            self._sums = [self._sum(index) for index in problem.objective.indices]

    def _sum(self, objective: SeparableObjective) -> _Sum:
        value = np.zeros((self.stages, self.exits, self.blocks, self.options))
        bonus = np.zeros((self.stages, self.exits))
        for s, walks in enumerate(objective.stages):
            for walk in walks:
                for leave in walk.exits:
                    bonus[s, leave.depth_index] = leave.bonus
                    columns = walk.value.shape[1]
                    value[s, leave.depth_index, : leave.depth, :columns] = walk.value[: leave.depth]
        return _Sum(objective.base, value, bonus)

    def scores(self, networks: Networks) -> np.ndarray:
        objective = self.problem.objective
        if isinstance(objective, SeparableObjective):
            return self._sums[0].of(networks)
        if isinstance(objective, IndexedObjective):
            return objective.link(np.stack([index.of(networks) for index in self._sums], axis=1))
        rows = networks.rows(self.decisions)
        if isinstance(objective, CoupledObjective):
            entries = self.decisions.entries(rows)
            pairs = objective.matrix[entries[:, :, None], entries[:, None, :]].sum(axis=(1, 2))
            return objective.base + objective.linear[entries].sum(axis=1) + pairs
        # whatever its kind, an objective can score one network after the other
        return np.array([objective.score(network) for network in self.problem.space.architectures(rows)])

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
        kept = np.asarray((self.costs(networks) <= budgets[:, None]).all(axis=0))
        size = self.problem.size_index
        return kept if size is None else kept & (networks.configs[:, -1, 0] == size)

    def canonical_rows(self, networks: Networks) -> np.ndarray:
        """Equal for equal networks: what was drawn for blocks that take no part is left out."""
        return self.decisions.canonical(networks.rows(self.decisions))

    def distinct(self, networks: Networks) -> np.ndarray:
        """Positions of the first of each set of equal networks."""
        rows = np.ascontiguousarray(self.canonical_rows(networks))
        as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))  # far quicker to compare
        return np.unique(as_bytes[:, 0], return_index=True)[1]

    def best_distinct(self, networks: Networks, count: int) -> list[tuple[float, Architecture]]:
        """The best of the networks within all limits, each architecture once, best first."""
        inside = networks[self.within(networks)]
        scores = self.scores(inside)
        found: dict[Architecture, float] = {}
        for n in np.argsort(-scores, kind="stable"):
            (architecture,) = self.problem.space.architectures(inside[n : n + 1].rows(self.decisions))
            found.setdefault(architecture, float(scores[n]))
            if len(found) == count:
                break
        return [(score, architecture) for architecture, score in found.items()]
