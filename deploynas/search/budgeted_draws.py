"""Random networks by given probabilities, drawn as if only those within a joint budget existed.

Decisions are drawn independently, and latencies add up over blocks. So the distribution of a network's latency follows
by convolution, block after block, and that of several networks in a row likewise; a draw walks back through the same
sums. What comes out is the distribution given the budget, without drawing again and again until chance keeps it.
Latencies are rounded to `BINS` of the budget on the way; whether a draw really keeps the budget is then asked of the
exact sum, and one that does not is drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.errors import GateError
from deploynas.search.joint_budget import JointBudget
from deploynas.space import Architecture, Space

BINS = 1000
TRIES = 50  # draws for each ensemble that is wanted: rounding and repeated members cost some


class BudgetedDraws:
    """`p`: the probability of every option, as a vector of decisions; every column adds up to one."""

    def __init__(self, space: Space, p: np.ndarray, budget: JointBudget) -> None:
        self.space, self.p, self.budget = space, p, budget
        self.unit = budget.budget_ms / BINS
        self._shifts = [np.rint(blocks / self.unit).astype(int) for blocks in budget.cost.blocks]
        self._before = [np.zeros(BINS + 1)]  # of every stage: the latency so far, scaled to a largest entry of 1
        fixed = round(budget.cost.fixed / self.unit)
        self._before[0][fixed : fixed + 1] = 1.0
        self._within = [self._through(s) for s in range(len(space.decisions.groups))]

    @property
    def latencies(self) -> np.ndarray:
        """Of one network: the probability of every number of bins up to the budget, up to a factor."""
        return self._before[-1]

    def ensembles(self, members: int, count: int, rng: np.random.Generator) -> list[tuple[Architecture, ...]]:
        """`count` draws of so many different networks, each draw within the joint budget; fewer if chance finds few."""
        alone, sums = self.latencies, [self.latencies]
        if self.budget.running == "serial":
            for _ in range(members - 1):
                sums.append(_scaled(np.convolve(sums[-1], alone)[: BINS + 1]))
        if not sums[-1].any():
            raise GateError(
                f"chance finds no {members} networks within {self.budget.budget_ms:.4g} ms ({self.budget.running})",
                hint="a larger budget, or fewer members",
            )
        found = list[tuple[Architecture, ...]]()
        for _ in range(TRIES * count):
            if len(found) == count:
                break
            drawn = tuple(self._network(k, rng) for k in self._split(members, sums, rng))
            if len(set(drawn)) == members and self.budget.allows(drawn):
                found.append(drawn)
        return found

    def _split(self, members: int, sums: Sequence[np.ndarray], rng: np.random.Generator) -> list[int]:
        """The bins of every member."""
        if self.budget.running == "parallel":
            return [_drawn(self.latencies, rng) for _ in range(members)]
        left, bins = _drawn(sums[-1], rng), list[int]()
        for others in reversed(sums[:-1]):
            own = _drawn(self.latencies[: left + 1] * others[: left + 1][::-1], rng)
            bins.append(own)
            left -= own
        return [*bins, left]

    def _through(self, s: int) -> list[np.ndarray]:
        """The latency after 0, 1, ... blocks of a stage; adds what it is after the stage."""
        decisions = self.space.decisions
        after = [self._before[s]]
        for b in range(len(decisions.groups[s].choices)):
            total = np.zeros(BINS + 1)
            for shift, p in zip(self._shifts[s][b], self._options(s, b), strict=False):
                if shift <= BINS:
                    total[shift:] += p * after[-1][: BINS + 1 - shift]
            after.append(total)
        p_depth = self.p[decisions.slices[s]]
        mixed = sum(p * after[depth] for p, depth in zip(p_depth, decisions.groups[s].depths, strict=True))
        self._before.append(_scaled(np.asarray(mixed)))
        return after

    def _options(self, s: int, b: int) -> np.ndarray:
        decisions = self.space.decisions
        return self.p[decisions.slices[decisions.column(s, b)]]

    def _network(self, bins: int, rng: np.random.Generator) -> Architecture:
        """One that takes so many bins, drawn from the last stage to the first."""
        choices = list[tuple[int, ...]]()
        for s, after in reversed(list(enumerate(self._within))):
            depths = self.space.decisions.groups[s].depths
            p_depth = self.p[self.space.decisions.slices[s]]
            depth = depths[_drawn(p_depth * [after[d][bins] for d in depths], rng)]
            picked = list[int]()
            for b in reversed(range(depth)):
                p, shifts = self._options(s, b), self._shifts[s][b][: len(self._options(s, b))]
                reached = np.where(shifts <= bins, after[b][np.maximum(bins - shifts, 0)], 0.0)
                picked.append(_drawn(p * reached, rng))
                bins -= int(shifts[picked[-1]])
            choices.append(tuple(reversed(picked)))
        return self.space.architecture(tuple(reversed(choices)))


def _drawn(weights: np.ndarray, rng: np.random.Generator) -> int:
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def _scaled(weights: np.ndarray) -> np.ndarray:
    """So that products of many small probabilities stay numbers; only ratios count."""
    largest = weights.max()
    return weights / largest if largest > 0 else weights
