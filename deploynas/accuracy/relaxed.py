"""What a relaxed search says of decisions: an estimator that ranks networks and says nothing about accuracy.

A softmax over alpha is the probability of every option. The score of a network is the logarithm of the probability of
its decisions over that of the most probable network: the sum, over the decisions that count, of

    log p(option) - log p(the most probable one) = alpha - max alpha

which is the same for all alpha of one softmax, at most 0, and 0 for the argmax. A sum in the form of eq. 3, so the
exact search and every limit work with it. Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Objective, Scale


class RelaxedFile(EstimatorFile):
    kind: Literal["relaxed"] = "relaxed"
    updates: str  # by which alpha was learned
    depth: list[list[float]]
    block: list[list[list[float]]]


@dataclass(frozen=True)
class RelaxedEstimator(StoredEstimator):
    """The sum of log probabilities; more is better, and differences mean nothing."""

    File: ClassVar = RelaxedFile
    scale: ClassVar[Scale] = "ordinal"

    updates: str
    worth: BilinearEstimator  # of every option, the logarithm of its probability over that of the most probable one

    @classmethod
    def from_alpha(cls, space: Space, updates: str, alpha: np.ndarray) -> RelaxedEstimator:
        """`alpha`: a logit for every option, in the order of a vector of decisions."""
        worth, decisions = np.empty(len(alpha)), space.decisions
        for where in decisions.slices:
            worth[where] = alpha[where] - alpha[where].max()
        return cls(space, updates, BilinearEstimator.from_arrays(space, 0.0, *decisions.ragged(worth)))

    def most_probable(self) -> Architecture:
        """The argmax of every decision."""
        decisions = self.space.decisions
        worth = decisions.flat(self.worth.depth, self.worth.block)
        row = np.array([int(np.argmax(worth[where])) for where in decisions.slices])
        return self.space.architecture(decisions.choices_of(decisions.canonical(row[None])[0]))

    def predict(self, architecture: Architecture) -> float:
        """The score, not an accuracy."""
        return self.worth.predict(architecture)

    def predict_se(self, architecture: Architecture) -> float | None:
        return None

    def objective(self) -> Objective:
        return self.worth.separable("ordinal")

    @property
    def ranked_by(self) -> str:
        return (
            f"log probability of its decisions in the relaxed search (`{self.updates}`), 0 for the most probable ones"
        )

    def _coefficients(self) -> dict[str, object]:
        return {"updates": self.updates, "depth": self.worth.depth, "block": self.worth.block}

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> RelaxedEstimator:
        assert isinstance(file, RelaxedFile)
        return cls(space, file.updates, BilinearEstimator.from_arrays(space, 0.0, file.depth, file.block))
