"""The sparse estimator (CoNAS): a few parities of bits, each with a value.

A bit is 1 where a network takes an option and -1 elsewhere (`bits`). Products of two bits are products of pairs of
decisions, so a polynomial of degree 2 is a `CoupledObjective`, or separates by stage if none reaches beyond a stage:
the exact solvers maximise it under any limits. One whose parities join three decisions can only be asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.accuracy.parities import Polynomial
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture, Decisions, Space
from deploynas.space.coefficients import Objective, OpaqueObjective

Expression = dict[tuple[int, ...], float]  # sum of values times products of entries, each product rising


class FourierFile(EstimatorFile):
    kind: Literal["fourier"] = "fourier"
    constant: float
    terms: list[list[int]]  # entries of the encoding, whose bits are multiplied
    values: list[float]
    residual_se: float | None = None


@dataclass(frozen=True)
class FourierEstimator(StoredEstimator):
    """Accuracy (0..1) as constant + sum of value * parity; `terms` name entries of the encoding (`space.encode`)."""

    File: ClassVar = FourierFile

    constant: float
    terms: tuple[tuple[int, ...], ...] = ()
    values: tuple[float, ...] = ()
    residual_se: float | None = None

    @classmethod
    def from_terms(
        cls,
        space: Space,
        constant: float,
        terms: Iterable[Sequence[int]],
        values: Iterable[float],
        *,
        residual_se: float | None = None,
    ) -> FourierEstimator:
        """Each term names the entries of the encoding (choices first, then depths) whose bits are multiplied."""
        named, worth = tuple(tuple(int(e) for e in term) for term in terms), tuple(float(v) for v in values)
        size = len(space.decisions)
        if len(named) != len(worth):
            raise InputError(f"{len(named)} terms need as many values, got {len(worth)}")
        if not (math.isfinite(constant) and all(map(math.isfinite, worth))):
            raise InputError("the constant and the values must be finite")
        for term in named:
            if not term or list(term) != sorted(set(term)) or term[0] < 0 or term[-1] >= size:
                raise InputError(f"a term is a rising list of entries below {size}, got {list(term)}")
        if residual_se is not None and not 0 <= residual_se < math.inf:
            raise InputError(f"residual_se must be finite and not negative, got {residual_se}")
        return cls(space, float(constant), named, worth, residual_se)

    @property
    def degree(self) -> int:
        return max(map(len, self.terms), default=0)

    @cached_property
    def _polynomial(self) -> Polynomial:
        return Polynomial(self.constant, self.terms, self.values)

    def predict_rows(self, rows: np.ndarray) -> np.ndarray:
        """The accuracies of many networks at once."""
        decisions = self.space.decisions
        return self._polynomial(2 * decisions.active(rows)[:, decisions.encoding] - 1)

    def predict(self, architecture: Architecture) -> float:
        return float(self.predict_rows(self.space.rows([architecture]))[0])

    def predict_se(self, architecture: Architecture) -> float | None:
        """That of a prediction on networks left out of the fit, the same for every network; None if it is not known."""
        return self.residual_se

    @cached_property
    def _quadratic(self) -> QuadraticEstimator | None:
        """The same function of the one-hot encoding; None if it has products of three of its entries."""
        total: Expression = {(): self.constant}
        for term, value in zip(self.terms, self.values, strict=True):
            for product, factor in _in_entries(self.space.decisions, term).items():
                total[product] = total.get(product, 0.0) + value * factor
        if any(len(product) > 2 for product in total):
            return None
        linear = np.zeros(len(self.space.decisions))
        for product, value in total.items():
            if len(product) == 1:
                linear[product[0]] = value
        pairs = [(*product, value) for product, value in total.items() if len(product) == 2]
        return QuadraticEstimator.from_arrays(self.space, total[()], linear, pairs)

    def objective(self) -> Objective:
        return OpaqueObjective(self) if self._quadratic is None else self._quadratic.objective()

    def _coefficients(self) -> dict[str, object]:
        return {
            "constant": self.constant,
            "terms": self.terms,
            "values": self.values,
            "residual_se": self.residual_se,
        }

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> FourierEstimator:
        assert isinstance(file, FourierFile)
        return cls.from_terms(space, file.constant, file.terms, file.values, residual_se=file.residual_se)


def _in_entries(decisions: Decisions, term: Sequence[int]) -> Expression:
    """A product of bits as a sum of products of entries of the encoding."""
    product: Expression = {(): 1.0}
    for entry in term:
        product = _times(decisions, product, _bit(decisions, entry))
    return product


def _bit(decisions: Decisions, entry: int) -> Expression:
    """2 z - 1, where z says that the option is taken and counts.

    A choice that does not count is encoded as its option 0, so that option's entry minus the depths at which the choice
    does not count is its z.
    """
    vector = int(decisions.encoding[entry])
    column = int(np.searchsorted(decisions.starts, vector, side="right")) - 1
    bit: Expression = {(): -1.0, (entry,): 2.0}
    choice = column - len(decisions.groups)
    if choice >= 0 and vector == decisions.starts[column]:
        group = decisions.places[choice][0]
        for depth in range(decisions.home[choice]):
            bit[(int(decisions.encoded_at[decisions.starts[group] + depth]),)] = -2.0
    return bit


def _times(decisions: Decisions, a: Expression, b: Expression) -> Expression:
    """Entries are 0 or 1, and two of one decision are never both 1."""
    found: Expression = {}
    for (p, x), (q, y) in itertools.product(a.items(), b.items()):
        product = tuple(sorted({*p, *q}))
        columns = np.searchsorted(decisions.starts, decisions.encoding[list(product)], side="right")
        if len(set(columns.tolist())) == len(product):
            found[product] = found.get(product, 0.0) + x * y
    return {product: value for product, value in found.items() if value or not product}
