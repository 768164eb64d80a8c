"""A multi-layer perceptron on the one-hot decisions: the paper's reference that explains nothing (3.2.3).

scikit-learn fits it; predicting takes NumPy alone, so that a search with it needs no more than any other.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.accuracy.learned import checked_accuracies
from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Objective, OpaqueObjective

HIDDEN = (64, 64)
MAX_ROUNDS, PATIENCE = 100, 10  # of five epochs


class MLPFile(EstimatorFile):
    kind: Literal["mlp"] = "mlp"
    weights: list[list[list[float]]]  # [layer][input][output]
    biases: list[list[float]]
    residual_se: float | None = None


@dataclass(frozen=True, eq=False)
class MLPEstimator(StoredEstimator):
    """Accuracy (0..1) by a network of ReLU layers over the decisions; see `fit_mlp`."""

    File: ClassVar = MLPFile

    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    residual_se: float | None = None

    def predict(self, architecture: Architecture) -> float:
        x = self.space.decisions.active(self.space.rows([architecture]))
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ w + b, 0)
        return float((x @ self.weights[-1] + self.biases[-1])[0, 0])

    def predict_se(self, architecture: Architecture) -> float | None:
        """That of a prediction on held-out networks, the same for every network."""
        return self.residual_se

    def objective(self) -> Objective:
        return OpaqueObjective(self)

    def _coefficients(self) -> dict[str, object]:
        return {
            "weights": [w.tolist() for w in self.weights],
            "biases": [b.tolist() for b in self.biases],
            "residual_se": self.residual_se,
        }

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> MLPEstimator:
        assert isinstance(file, MLPFile)
        sizes = [len(space.decisions), *(len(b) for b in file.biases)]
        shapes = [(len(w), *{len(row) for row in w}) for w in file.weights]
        if shapes != list(itertools.pairwise(sizes)) or sizes[-1] != 1:
            raise InputError("damaged: its layers do not fit each other", hint="write it again")
        weights, biases = (tuple(np.array(v) for v in values) for values in (file.weights, file.biases))
        return cls(space, weights, biases, file.residual_se)


def fit_mlp(
    space: Space, architectures: Sequence[Architecture], accuracies: Sequence[float] | np.ndarray, *, seed: int = 0
) -> MLPEstimator:
    """Fit with early stopping on a tenth of the networks."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    y = checked_accuracies(space, architectures, accuracies)
    x = space.decisions.active(space.rows(architectures))
    held_out = np.random.default_rng(seed).permutation(len(y))[: max(2, len(y) // 10)]
    fitted = np.setdiff1d(np.arange(len(y)), held_out)
    mean, scale = float(y[fitted].mean()), float(y[fitted].std()) or 1.0
    model = MLPRegressor(
        hidden_layer_sizes=HIDDEN, alpha=1e-2, learning_rate_init=3e-3, random_state=seed, warm_start=True, max_iter=5
    )
    best, kept, since = np.inf, None, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # five epochs at a time never converge
        for _ in range(MAX_ROUNDS):
            model.fit(x[fitted], (y[fitted] - mean) / scale)
            error = float(np.sqrt(np.mean((mean + scale * model.predict(x[held_out]) - y[held_out]) ** 2)))
            since += 1
            if error < best:
                best, since = error, 0
                kept = [w.copy() for w in model.coefs_], [b.copy() for b in model.intercepts_]
            if since == PATIENCE:
                break
    assert kept is not None
    weights, biases = kept
    weights[-1] = weights[-1] * scale
    biases[-1] = biases[-1] * scale + mean
    return MLPEstimator(space, tuple(weights), tuple(biases), best)
