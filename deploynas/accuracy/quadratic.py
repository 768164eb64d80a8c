"""The quadratic estimator (eq. 4): a linear form in the encoding plus products of pairs of its entries.

ACC = base + linear . x + sum of value * x[first] * x[second], x = (alpha, beta) as `space.encode` lays it
out. A learned fit of pairs, within stages or across them, has this form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import CoupledObjective, Objective


class QuadraticFile(EstimatorFile):
    kind: Literal["quadratic"] = "quadratic"
    base: float
    linear: list[float]
    first: list[int]
    second: list[int]
    value: list[float]
    residual_se: float | None = None


@dataclass(frozen=True)
class QuadraticEstimator(StoredEstimator):
    """Accuracy (0..1) with pair terms: `value[p]` when entries `first[p] < second[p]` are both 1."""

    File: ClassVar = QuadraticFile

    base: float
    linear: tuple[float, ...]
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()
    value: tuple[float, ...] = ()
    residual_se: float | None = None

    @classmethod
    def from_arrays(
        cls,
        space: Space,
        base: float,
        linear: Sequence | np.ndarray,
        pairs: np.ndarray | Sequence[tuple[int, int, float]] = (),
        *,
        residual_se: float | None = None,
    ) -> QuadraticEstimator:
        """`pairs` is a square matrix over the encoding (all of it counts), or a list of (i, j, value).

        Squares of an entry are folded into `linear`, since an entry is 0 or 1; (i, j) and (j, i) are added
        up.
        """
        size = len(space.decisions)
        folded = np.array(linear, dtype=float)
        if folded.shape != (size,):
            raise InputError(f"linear must have {size} entries for space `{space.name}`, got {folded.shape}")
        i, j, value = _triples(pairs, size)
        if not (math.isfinite(base) and np.isfinite(folded).all() and np.isfinite(value).all()):
            raise InputError("base, linear and pairs must be finite")
        if residual_se is not None and not 0 <= residual_se < math.inf:
            raise InputError(f"residual_se must be finite and not negative, got {residual_se}")
        np.add.at(folded, i[i == j], value[i == j])
        low, high = np.minimum(i, j)[i != j], np.maximum(i, j)[i != j]
        keys, where = np.unique(low * size + high, return_inverse=True)
        summed = np.bincount(where, weights=value[i != j], minlength=len(keys))
        keys, summed = keys[summed != 0], summed[summed != 0]
        return cls(
            space,
            float(base),
            tuple(folded.tolist()),
            tuple((keys // size).tolist()),
            tuple((keys % size).tolist()),
            tuple(summed.tolist()),
            residual_se,
        )

    def _coefficients(self) -> dict[str, object]:
        return {
            "base": self.base,
            "linear": self.linear,
            "first": self.first,
            "second": self.second,
            "value": self.value,
            "residual_se": self.residual_se,
        }

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> QuadraticEstimator:
        assert isinstance(file, QuadraticFile)
        if not len(file.first) == len(file.second) == len(file.value):
            raise InputError("`first`, `second` and `value` must have the same length")
        pairs = list(zip(file.first, file.second, file.value, strict=True))
        return cls.from_arrays(space, file.base, file.linear, pairs, residual_se=file.residual_se)

    @cached_property
    def _form(self) -> CoupledObjective:
        return CoupledObjective(
            self.space.decisions,
            self.base,
            np.array(self.linear, dtype=float),
            np.array(self.first, dtype=int),
            np.array(self.second, dtype=int),
            np.array(self.value, dtype=float),
        )

    def predict(self, architecture: Architecture) -> float:
        self.space.require_member(architecture)
        return self._form.score(architecture)

    def predict_se(self, architecture: Architecture) -> float | None:
        """That of a prediction of the fit, the same for every network; None when it is not known."""
        return self.residual_se

    def objective(self) -> Objective:
        """Pairs within a stage separate, pairs across stages do not."""
        return self._form.separated() or self._form


def _triples(
    pairs: np.ndarray | Sequence[tuple[int, int, float]], size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(pairs, np.ndarray):
        if pairs.shape != (size, size):
            raise InputError(f"a matrix of pairs must be {size} x {size}, got shape {pairs.shape}")
        i, j = np.nonzero(pairs)
        return i, j, pairs[i, j].astype(float)
    table = np.array([tuple(pair) for pair in pairs], dtype=float).reshape(-1, 3) if len(pairs) else np.empty((0, 3))
    i, j = table[:, 0].astype(int), table[:, 1].astype(int)
    if len(table) and not (min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < size):
        raise InputError(f"pairs must index the {size} entries of the encoding")
    return i, j, table[:, 2]
