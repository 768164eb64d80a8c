"""The maximum of a sum of small tables, exactly: variable after variable is eliminated.

Brute force over everything that a sparse polynomial touches (CoNAS, algorithm 1) doubles with every bit. But each term
touches few variables, so a variable's best option depends on few others: it is tabulated for those, the variable is
gone, and what is left is a sum of tables again. The answer is that of brute force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploynas.errors import InputError

MOST_ENTRIES = 4_000_000  # of one table


@dataclass(frozen=True)
class Factor:
    """A summand: its value for every combination of the options of its variables, one axis for each."""

    variables: tuple[int, ...]
    table: np.ndarray


def maximise(factors: Sequence[Factor], sizes: Sequence[int]) -> np.ndarray:
    """The option of every variable at the maximum of the sum; 0 where it does not matter."""
    left = list(factors)
    solved: list[tuple[int, Factor]] = []  # a variable, and its best option for every combination of others
    while left:
        variable = min({v for own in left for v in own.variables}, key=lambda v: _entries(left, v, sizes))
        if _entries(left, variable, sizes) > MOST_ENTRIES:
            raise InputError(
                "the terms tie too many decisions together to find their maximum", hint="fewer terms: `--terms 14`"
            )
        joined = _sum([own for own in left if variable in own.variables], sizes)
        axis = joined.variables.index(variable)
        others = tuple(v for v in joined.variables if v != variable)
        left = [own for own in left if variable not in own.variables]
        solved.append((variable, Factor(others, joined.table.argmax(axis))))
        if others:
            left.append(Factor(others, joined.table.max(axis)))
    best = np.zeros(len(sizes), dtype=int)
    for variable, option in reversed(solved):
        best[variable] = option.table[tuple(best[v] for v in option.variables)]
    return best


def as_good(factors: Sequence[Factor], variable: int, option: int, size: int) -> np.ndarray:
    """The options of a variable that no factor tells apart from the given one, whatever the others are."""
    own = [np.moveaxis(f.table, f.variables.index(variable), 0) for f in factors if variable in f.variables]
    return np.array([o for o in range(size) if all(np.array_equal(table[o], table[option]) for table in own)])


def _entries(factors: Sequence[Factor], variable: int, sizes: Sequence[int]) -> int:
    """Of the table that eliminating a variable takes."""
    together = {v for own in factors if variable in own.variables for v in own.variables}
    return int(np.prod([float(sizes[v]) for v in together]))


def _sum(factors: Sequence[Factor], sizes: Sequence[int]) -> Factor:
    variables = tuple(sorted({v for own in factors for v in own.variables}))
    total = np.zeros([sizes[v] for v in variables])
    for own in factors:
        order = np.argsort(own.variables)
        shape = [sizes[v] if v in own.variables else 1 for v in variables]
        total = total + own.table.transpose(order).reshape(shape)
    return Factor(variables, total)
