"""Functions of bits as sums of parities (CoNAS, definition 2.1): products of at most a few bits, each with a value.

Columns of the sampling matrix (eq. 2.2) are made only for the parities that a fit looks at. What all of them have in
common with a vector r takes no column at all: sum over networks of r x_i x_j is entry (i, j) of X' diag(r) X.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deploynas.errors import InputError

Term = tuple[int, ...]  # the bits that are multiplied, rising
MAX_DEGREE = 3  # of a parity; all of degree 3 are a million for 196 bits


@dataclass(frozen=True)
class Polynomial:
    """constant + sum of value * product of the bits of a term."""

    constant: float
    terms: tuple[Term, ...] = ()
    values: tuple[float, ...] = ()

    def __call__(self, bits: np.ndarray) -> np.ndarray:
        total = np.full(len(bits), self.constant)
        for term, value in zip(self.terms, self.values, strict=True):
            total += value * bits[:, list(term)].prod(axis=1)
        return total

    def largest(self, count: int) -> Polynomial:
        """The terms with the largest absolute values. The constant, which changes no ranking, always stays."""
        order = np.argsort(-np.abs(self.values), kind="stable")[:count]
        return Polynomial(self.constant, tuple(self.terms[i] for i in order), tuple(self.values[i] for i in order))


class SamplingMatrix:
    """All parities of degree 1 to `degree` on sampled bits: the matrix A of eq. 2.2 without its column of ones.

    Where at most one bit of a decision is 1, the product of two of them is known from each alone: x y = -1 - x - y.
    `decision_of` says which bits belong together, so that such products are left out; None leaves nothing out.
    """

    def __init__(self, bits: np.ndarray, degree: int, decision_of: np.ndarray | None = None) -> None:
        if not 1 <= degree <= MAX_DEGREE:
            raise InputError(f"parities have a degree of 1 to {MAX_DEGREE}, got {degree}")
        self.bits = np.asarray(bits, dtype=float)
        self.degree = degree
        self.decision_of = np.arange(self.bits.shape[1]) if decision_of is None else decision_of

    @cached_property
    def _terms(self) -> np.ndarray:
        """(parities, degree): the bits of each, rising, padded with -1 in front."""
        found = []
        for degree in range(1, self.degree + 1):
            own = _combinations(self.bits.shape[1], degree)
            together = self.decision_of[own]
            apart = np.ones(len(own), dtype=bool)
            for a, b in itertools.combinations(range(degree), 2):
                apart &= together[:, a] != together[:, b]
            own = own[apart]
            found.append(np.concatenate([np.full((len(own), self.degree - degree), -1), own], axis=1))
        return np.concatenate(found)

    def __len__(self) -> int:
        return len(self._terms)

    def term(self, number: int) -> Term:
        return tuple(int(bit) for bit in self._terms[number] if bit >= 0)

    @cached_property
    def _padded(self) -> np.ndarray:
        """The bits, and behind them the column of ones that number -1 is."""
        return np.concatenate([self.bits, np.ones((len(self.bits), 1))], axis=1)

    def columns(self, numbers: np.ndarray) -> np.ndarray:
        """(networks, numbers): the parities themselves."""
        return self._padded[:, self._terms[numbers]].prod(axis=2)

    def products(self, r: np.ndarray) -> np.ndarray:
        """Of every parity with a vector: A' r."""
        if self.degree == 1:
            return (self._padded.T @ r)[self._terms[:, 0]]
        if self.degree == 2:
            return self._pair_products(r)[self._terms[:, 0], self._terms[:, 1]]
        found = np.empty(len(self))
        for first in np.unique(self._terms[:, 0]):
            own = self._terms[:, 0] == first
            pairs = self._pair_products(r * self._padded[:, first])
            found[own] = pairs[self._terms[own, 1], self._terms[own, 2]]
        return found

    def _pair_products(self, r: np.ndarray) -> np.ndarray:
        return self._padded.T @ (r[:, None] * self._padded)


def _combinations(bits: int, degree: int) -> np.ndarray:
    if degree == 1:
        return np.arange(bits)[:, None]
    if degree == 2:
        return np.stack(np.triu_indices(bits, 1), axis=1)
    return np.array(list(itertools.combinations(range(bits), degree)), dtype=np.int64).reshape(-1, degree)
