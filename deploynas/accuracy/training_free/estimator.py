"""What every decision adds to a training-free score: an estimator that ranks networks and says nothing about accuracy.

Its score is a sum in the form of eq. 3, so the exact search and every limit work with it. Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from deploynas.accuracy.bilinear import BilinearEstimator, BilinearFile
from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.accuracy.registry import require_known
from deploynas.accuracy.training_free.registry import WORDS, Reading
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Objective, Scale


class TrainingFreeFile(EstimatorFile):
    kind: Literal["training-free"] = "training-free"
    score: str  # which one
    reading: Reading  # where the contributions come from
    base: float
    depth: list[list[float]]
    block: list[list[list[float]]]
    base_se: float | None = None
    depth_se: list[list[float]] | None = None
    block_se: list[list[list[float]]] | None = None


@dataclass(frozen=True)
class TrainingFreeEstimator(StoredEstimator):
    """The sum of contributions to a score; more is better, and differences mean nothing."""

    File: ClassVar = TrainingFreeFile
    scale: ClassVar[Scale] = "ordinal"

    score: str
    reading: Reading
    worth: BilinearEstimator  # the contributions, in the unit of the score

    def predict(self, architecture: Architecture) -> float:
        """The score, not an accuracy."""
        return self.worth.predict(architecture)

    def predict_se(self, architecture: Architecture) -> float | None:
        """Of the score."""
        return self.worth.predict_se(architecture)

    def objective(self) -> Objective:
        return self.worth.separable("ordinal")

    @property
    def ranked_by(self) -> str:
        return f"training-free `{self.score}`, {WORDS[self.score]}"

    def _coefficients(self) -> dict[str, object]:
        return {"score": self.score, "reading": self.reading, **self.worth._coefficients()}

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> TrainingFreeEstimator:
        assert isinstance(file, TrainingFreeFile)
        require_known("training-free score", file.score, WORDS)
        own = {key: value for key, value in file.model_dump().items() if key in BilinearFile.model_fields}
        shared = BilinearFile.model_validate({**own, "kind": "bilinear", "comparisons": []})
        return cls(space, file.score, file.reading, BilinearEstimator._from_file(space, shared))
