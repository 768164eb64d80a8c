"""What is still open of every decision while a search narrows a space down, and what a sparse polynomial decides of it.

CoNAS fixes the bits that its polynomial touches (definition 2.2) and samples again in what is left. Where a choice has
one option, as in all our spaces, there are two ways. `exact`: the best networks of the polynomial, found under that
condition, and options that it does not tell apart stay open. `published`: the best bits, each on its own; an edge takes
one of the options whose bits are 1, drawn at random, and loses those whose bits are -1.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.bits import Bits
from deploynas.accuracy.elimination import Factor, as_good, maximise
from deploynas.accuracy.parities import Polynomial
from deploynas.space import Decisions


@dataclass(frozen=True)
class Restriction:
    """The options of every column of a row that are still open."""

    decisions: Decisions
    options: tuple[np.ndarray, ...]

    @classmethod
    def nothing(cls, decisions: Decisions) -> Restriction:
        return cls(decisions, tuple(np.arange(size) for size in decisions.sizes))

    @classmethod
    def to(cls, decisions: Decisions, row: np.ndarray) -> Restriction:
        """One network."""
        return cls(decisions, tuple(np.array([int(option)]) for option in row))

    @property
    def combinations(self) -> int:
        """Of open options; no fewer than networks."""
        return math.prod(len(own) for own in self.options)

    @property
    def decided(self) -> int:
        """Decisions with one option left."""
        return sum(len(own) == 1 for own in self.options)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Rows, every decision uniform over what is open."""
        columns = [own[rng.integers(len(own), size=count)] for own in self.options]
        return np.stack(columns, axis=1).astype(self.decisions.dtype)

    def draw_bits(
        self, bits: Bits, count: int, probability: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bits of open options, each 1 with a probability, and networks: one option whose bit is 1, at random.

        Where no bit is 1, one of all that are open.
        """
        drawn = np.full((count, len(bits)), -1, dtype=np.int8)
        rows = self.draw(count, rng)
        for column, own in enumerate(self.options):
            open_bits = np.flatnonzero((bits.columns == column) & np.isin(bits.options, own))
            if not len(open_bits):
                continue
            active = rng.random((count, len(open_bits))) < probability if len(own) > 1 else np.ones((count, 1), bool)
            drawn[:, open_bits] = np.where(active, 1, -1)
            picked = np.where(active, rng.random(active.shape), -1.0).argmax(axis=1)
            some = active.any(axis=1)
            rows[some, column] = bits.options[open_bits][picked[some]]
        return drawn, rows

    def every(self) -> np.ndarray:
        """All networks that are left, each once."""
        rows = np.array(list(itertools.product(*(own.tolist() for own in self.options))))
        return np.unique(self.decisions.canonical(rows), axis=0)

    def narrowed(self, bits: Bits, polynomial: Polynomial) -> Restriction:
        """To the best networks by the polynomial, one option for each choice."""
        factors = [self._factor(bits, term, value) for term, value in _terms(polynomial)]
        sizes = [len(own) for own in self.options]
        best = maximise(factors, sizes)
        kept = (own[as_good(factors, c, int(best[c]), len(own))] for c, own in enumerate(self.options))
        return Restriction(self.decisions, tuple(kept))

    def narrowed_by_bits(self, bits: Bits, polynomial: Polynomial, rng: np.random.Generator) -> Restriction:
        """As published: to the best bits, whatever becomes of choices."""
        touched = sorted({bit for term in polynomial.terms for bit in term})
        factors = [
            Factor(tuple(map(touched.index, term)), value * _outer([np.array([-1.0, 1.0])] * len(term)))
            for term, value in _terms(polynomial)
        ]
        is_one = dict(zip(touched, maximise(factors, [2] * len(touched)).astype(bool), strict=True))
        kept = []
        for column, own in enumerate(self.options):
            ones = [int(bits.options[b]) for b, one in is_one.items() if one and bits.columns[b] == column]
            out = [int(bits.options[b]) for b, one in is_one.items() if not one and bits.columns[b] == column]
            ones, rest = [o for o in ones if o in own], np.setdiff1d(own, out)
            kept.append(np.array([rng.choice(ones)]) if ones else rest if len(rest) else own)
        return Restriction(self.decisions, tuple(kept))

    def _factor(self, bits: Bits, term: tuple[int, ...], value: float) -> Factor:
        """A term as a table over the options of its decisions, and of the depths that decide whether those count."""
        variables = sorted(
            {v for bit in term for v in (self._depth(bits, bit), int(bits.columns[bit])) if v is not None}
        )
        table = np.full([len(self.options[v]) for v in variables], value)
        for bit in term:
            column, depth = int(bits.columns[bit]), self._depth(bits, bit)
            taken = _along(self.options[column] == bits.options[bit], variables, column)
            if depth is not None:
                home = self.decisions.home[column - len(self.decisions.groups)]
                taken = taken & _along(self.options[depth] >= home, variables, depth)
            table = table * np.where(taken, 1.0, -1.0)
        return Factor(tuple(variables), table)

    def _depth(self, bits: Bits, bit: int) -> int | None:
        """The column of the depth that decides whether the bit's choice counts; None if it always does."""
        choice = int(bits.columns[bit]) - len(self.decisions.groups)
        return None if choice < 0 or self.decisions.home[choice] == 0 else self.decisions.places[choice][0]


def _terms(polynomial: Polynomial) -> zip[tuple[tuple[int, ...], float]]:
    return zip(polynomial.terms, polynomial.values, strict=True)


def _along(values: np.ndarray, variables: list[int], variable: int) -> np.ndarray:
    """A vector over one variable's options, as a table over several variables."""
    return values.reshape([-1 if v == variable else 1 for v in variables])


def _outer(vectors: list[np.ndarray]) -> np.ndarray:
    found = np.ones(())
    for vector in vectors:
        found = found[..., None] * vector
    return found
