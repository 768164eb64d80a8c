"""What networks cost on average when every decision is drawn by probabilities of its own.

A cost is a sum over blocks, and a block counts if its stage is deep enough, so with p the options' probabilities

    E = fixed + sum over stages s and blocks b of P(depth_s > b) <p_sb, cost_sb>

which is linear in the probabilities of each decision. The factor that an option's probability has there is LAT_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.files import content_hash
from deploynas.space import Decisions
from deploynas.space.coefficients import Cost
from deploynas.space.softmax import softmax, through_softmax


@dataclass(frozen=True)
class ExpectedCost:
    """Of a cost that adds up, with coefficients of its own (one input size)."""

    decisions: Decisions
    cost: Cost

    def __call__(self, p: np.ndarray) -> float:
        """`p`: a vector of decisions, every column adding up to 1."""
        return self.cost.fixed + float(sum(self._reached(p, s) @ means for s, means in enumerate(self._block_means(p))))

    def by_option(self, p: np.ndarray) -> np.ndarray:
        """LAT_k of every option: the derivative by its probability, those of other decisions held."""
        found, decisions = np.zeros(len(self.decisions)), self.decisions
        for s, means in enumerate(self._block_means(p)):
            reached, upto = self._reached(p, s), np.concatenate([[0.0], np.cumsum(means)])
            found[decisions.slices[s]] = upto[list(decisions.groups[s].depths)]
            for b in range(len(means)):
                where = decisions.slices[decisions.column(s, b)]
                found[where] = reached[b] * self.cost.blocks[s][b, : where.stop - where.start]
        return found

    def _block_means(self, p: np.ndarray) -> list[np.ndarray]:
        """[stage][block]: the mean over its options."""
        decisions, means = self.decisions, []
        for s, group in enumerate(decisions.groups):
            own = [p[decisions.slices[decisions.column(s, b)]] for b in range(len(group.choices))]
            means.append(np.array([q @ self.cost.blocks[s][b, : len(q)] for b, q in enumerate(own)]))
        return means

    def _reached(self, p: np.ndarray, s: int) -> np.ndarray:
        """[block]: the probability that the stage is deep enough for it."""
        group = self.decisions.groups[s]
        deeper = np.array([[depth > b for depth in group.depths] for b in range(len(group.choices))])
        return deeper @ p[self.decisions.slices[s]]


@dataclass(frozen=True)
class CostPenalty:
    """P of logits: every expected cost over what it is where all options are as probable, added up."""

    decisions: Decisions
    parts: tuple[tuple[ExpectedCost, float], ...]  # and what each is divided by

    @classmethod
    def of(cls, decisions: Decisions, costs: Sequence[Cost]) -> CostPenalty:
        """Costs that nobody can have any of are left out."""
        uniform = softmax(decisions, np.zeros(len(decisions)))
        expected = [ExpectedCost(decisions, cost) for cost in costs]
        return cls(decisions, tuple((own, own(uniform)) for own in expected if own(uniform) > 0))

    def __call__(self, logits: np.ndarray) -> float:
        p = softmax(self.decisions, logits)
        return sum(own(p) / unit for own, unit in self.parts)

    def gradient(self, logits: np.ndarray) -> np.ndarray:
        """Of every logit, softmax_k (LAT_k - mean)."""
        p, latencies = softmax(self.decisions, logits), np.zeros(len(self.decisions))
        for own, unit in self.parts:
            latencies += own.by_option(p) / unit
        return through_softmax(self.decisions, logits, latencies)

    @property
    def content_hash(self) -> str:
        """Changes with any coefficient."""
        return content_hash([[own.cost.fixed, *(stage.tolist() for stage in own.cost.blocks)] for own, _ in self.parts])
