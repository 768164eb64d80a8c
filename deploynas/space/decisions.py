"""What can be decided, and every way to write a set of decisions down. One layout serves all of them.

Choices stand in groups; of a group's choices the first `depth` count, and the depth is itself decided. A stage of
blocks is a group, a cell of six edges is one whose only depth is 6, an input size is a group of one choice. What
the options build (channels, convolutions) is not known here.

A *row* is one network: a column with the index of the depth for every group, then a column with the index of the
option for every choice, in network order. A *vector* has an entry for every option of every column, in the same
order (`starts`, `slices`). A choice that does not count is written as its option 0, whatever was drawn for it
(`canonical`); regressions write zeros instead (`active`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deploynas.errors import InputError

Choices = tuple[tuple[int, ...], ...]  # [group][choice that counts]: index of its option
Depths = tuple[tuple[float, ...], ...]  # [group][depth]
Ragged = tuple[tuple[tuple[float, ...], ...], ...]  # [group][choice][option]


@dataclass(frozen=True)
class Option:
    """Something to choose, for people, and what it is made of: options that share a level of a factor are alike.

    Options of different kinds have nothing else to be compared by.
    """

    label: str
    factors: tuple[tuple[str, float], ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class Choice:
    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Group:
    """Choices in a row, of which the first few count: as many as the depth says, one of `depths` (rising)."""

    name: str
    depths: tuple[int, ...]
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        if list(self.depths) != sorted(set(self.depths)) or not self.depths or self.depths[-1] != len(self.choices):
            raise InputError(
                f"{self.name}: depths must rise up to the number of choices, {len(self.choices)}, got {self.depths}"
            )


@dataclass(frozen=True)
class Decisions:
    """All decisions of a space, numbered; see the module for the layout."""

    groups: tuple[Group, ...]
    group_word: str = "stage"  # what people call a group, and a choice in it
    choice_word: str = "block"

    # -- the layout -----------------------------------------------------------------------------

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Of every choice, in the order of their columns: its group, and its position there."""
        return tuple((g, i) for g, group in enumerate(self.groups) for i in range(len(group.choices)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of every column."""
        depths = [f"depth of {group.name}" for group in self.groups]
        return (*depths, *(self.groups[g].choices[i].name for g, i in self.places))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of options of every column."""
        depths = [len(group.depths) for group in self.groups]
        return (*depths, *(len(self.groups[g].choices[i].options) for g, i in self.places))

    @property
    def columns(self) -> int:
        return len(self.sizes)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where every column's options start in a vector; the last entry is where they end."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Every column's options in a vector."""
        return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(self.starts))

    def __len__(self) -> int:
        """The number of all options of all columns."""
        return int(self.starts[-1])

    @cached_property
    def dtype(self) -> type[np.unsignedinteger]:
        """Of a row: small, since samples are kept by the million."""
        return np.uint8 if max(self.sizes) <= 256 else np.uint16

    def column(self, group: int, position: int) -> int:
        """The column of a choice. (That of a group's depth is the group's number.)"""
        return self._first_columns[group] + position

    @cached_property
    def _first_columns(self) -> tuple[int, ...]:
        counts = [len(group.choices) for group in self.groups]
        return tuple(len(self.groups) + sum(counts[:g]) for g in range(len(counts)))

    @cached_property
    def home(self) -> tuple[int, ...]:
        """Of every choice, the index of the shallowest depth at which it counts."""
        return tuple(
            next(i for i, d in enumerate(self.groups[g].depths) if d > position) for g, position in self.places
        )

    @cached_property
    def encoding(self) -> np.ndarray:
        """The entries of a vector in the order of (alpha, beta), the papers': choices first, then depths."""
        depths = int(self.starts[len(self.groups)])
        return np.concatenate([np.arange(depths, len(self)), np.arange(depths)])

    @cached_property
    def encoded_at(self) -> np.ndarray:
        """The inverse of `encoding`: where (alpha, beta) has each entry of a vector."""
        return np.argsort(self.encoding)

    @property
    def alphas(self) -> int:
        """The length of alpha."""
        return len(self) - int(self.starts[len(self.groups)])

    # -- how many, which ------------------------------------------------------------------------

    def combinations(self) -> int:
        """How many networks there are, exactly."""
        sizes = [[len(choice.options) for choice in group.choices] for group in self.groups]
        each = (
            sum(math.prod(own[:depth]) for depth in group.depths) for group, own in zip(self.groups, sizes, strict=True)
        )
        return math.prod(each)

    def enumerate(self) -> Iterator[Choices]:
        """All networks; for spaces small enough to want that."""
        per_group = [
            [
                picked
                for depth in group.depths
                for picked in itertools.product(*(range(len(choice.options)) for choice in group.choices[:depth]))
            ]
            for group in self.groups
        ]
        return itertools.product(*per_group)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """`n` rows, every decision uniform and independent (which is not uniform over networks)."""
        rows = np.empty((n, self.columns), dtype=self.dtype)
        for g, (group, first, below) in enumerate(zip(self.groups, self._first_columns, self._below, strict=True)):
            rows[:, first : first + len(group.choices)] = rng.integers(below, size=(n, len(group.choices)))
            rows[:, g] = rng.integers(len(group.depths), size=n)
        return rows

    @cached_property
    def _below(self) -> tuple[int | np.ndarray, ...]:
        """Of every group, the number of options of its choices: one number where all have the same."""
        sizes = [[len(choice.options) for choice in group.choices] for group in self.groups]
        return tuple(own[0] if len(set(own)) == 1 else np.array(own) for own in sizes)

    # -- rows -----------------------------------------------------------------------------------

    def row(self, choices: Sequence[Sequence[int]]) -> list[int]:
        """From the options of the choices that count: `choices[group][position]`."""
        depths = [group.depths.index(len(picked)) for group, picked in zip(self.groups, choices, strict=True)]
        for group, picked in zip(self.groups, choices, strict=True):
            depths += [*picked, *(0,) * (len(group.choices) - len(picked))]
        return depths

    def rows(self, networks: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
        """One canonical row for each network."""
        found = [self.row(choices) for choices in networks]
        return np.array(found, dtype=self.dtype).reshape(len(found), self.columns)

    def choices_of(self, row: np.ndarray) -> Choices:
        """The options of the choices that count."""
        values = row.tolist()
        return tuple(
            tuple(values[first : first + group.depths[depth]])
            for group, depth, first in zip(self.groups, values, self._first_columns, strict=False)
        )

    def require_choices(self, choices: Sequence[Sequence[int]]) -> None:
        """Whether `choices[group][position]` is a network."""
        self._require_groups(choices, "a network")
        for group, picked in zip(self.groups, choices, strict=True):
            if len(picked) not in group.depths:
                raise InputError(f"{group.name} has depth {len(picked)}, allowed: {_listed(group.depths)}")
            for choice, option in zip(group.choices, picked, strict=False):
                if not 0 <= option < len(choice.options):
                    raise InputError(f"{choice.name} has no option {option} (0 to {len(choice.options) - 1})")

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """(rows, columns): whether the decision counts. Depths always do."""
        depths = np.ones((len(rows), len(self.groups)), dtype=bool)
        group_of = [g for g, _ in self.places]
        return np.concatenate([depths, rows[:, group_of] >= np.array(self.home)], axis=1)

    def canonical(self, rows: np.ndarray) -> np.ndarray:
        """The same networks, with option 0 where a choice does not count: equal networks have equal rows."""
        return np.where(self.counts(rows), rows, 0).astype(self.dtype)

    def require_rows(self, rows: np.ndarray) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.columns or not np.issubdtype(rows.dtype, np.integer):
            raise InputError(
                f"rows of decisions are integers of shape (networks, {self.columns}), "
                f"got {rows.dtype} of shape {rows.shape}"
            )
        wrong = (rows < 0) | (rows >= np.array(self.sizes))
        if wrong.any():
            n, column = np.argwhere(wrong)[0]
            raise InputError(
                f"row {n} has option {rows[n, column]} of the {self.names[column]}, which does not have it",
                hint=f"0 to {self.sizes[column] - 1}",
            )

    # -- vectors --------------------------------------------------------------------------------

    def one_hot(self, rows: np.ndarray) -> np.ndarray:
        """(rows, options): every column one-hot, at option 0 where a choice does not count."""
        x = np.zeros((len(rows), len(self)))
        np.put_along_axis(x, self.starts[:-1] + self.canonical(rows).astype(int), 1.0, axis=1)
        return x

    def active(self, rows: np.ndarray) -> np.ndarray:
        """(rows, options): one-hot where a decision counts, zeros elsewhere."""
        return self.one_hot(rows) * np.repeat(self.counts(rows), self.sizes, axis=1)

    def entries(self, rows: np.ndarray) -> np.ndarray:
        """(rows, columns): where (alpha, beta) has its ones."""
        places = self.encoded_at[self.starts[:-1] + self.canonical(rows).astype(int)]
        return np.roll(places, -len(self.groups), axis=1)  # choices first there too

    def row_of(self, vector: np.ndarray) -> np.ndarray:
        """The inverse of `one_hot`, for one vector; columns that do not count are not looked at."""
        row = np.array([int(np.argmax(vector[where])) for where in self.slices])
        for column in np.flatnonzero(self.counts(row[None])[0]):
            own = vector[self.slices[column]]
            if np.count_nonzero(own) != 1 or own[row[column]] != 1:
                raise InputError(f"the encoding of {self.names[column]} is not one-hot: {own.tolist()}")
        return self.canonical(row[None])[0]

    def ragged(self, vector: np.ndarray) -> tuple[list[list[float]], list[list[list[float]]]]:
        """A vector as [group][depth] and [group][choice][option]."""
        depth = [vector[self.slices[g]].tolist() for g in range(len(self.groups))]
        choice = [
            [vector[self.slices[self.column(g, i)]].tolist() for i in range(len(group.choices))]
            for g, group in enumerate(self.groups)
        ]
        return depth, choice

    def flat(self, depth: Sequence[Sequence[float]], choice: Sequence[Sequence[Sequence[float]]]) -> np.ndarray:
        """The inverse of `ragged`."""
        rows = [*depth, *(row for group in choice for row in group)]
        return np.concatenate([np.asarray(row, dtype=float) for row in rows])

    def require_depths(self, values: Sequence, what: str, minimum: float | None = None) -> Depths:
        """Check numbers indexed [group][depth]; return them as tuples of floats."""
        self._require_groups(values, what)
        for group, row in zip(self.groups, values, strict=True):
            if len(row) != len(group.depths):
                raise InputError(f"{what}: {group.name} must have {len(group.depths)} depths, got {len(row)}")
        named = zip(self.groups, values, strict=True)
        return tuple(_finite(row, f"{what} of {group.name}", minimum) for group, row in named)

    def require_options(self, values: Sequence, what: str, minimum: float | None = None) -> Ragged:
        """Check numbers indexed [group][choice][option]; return them as tuples of floats."""
        self._require_groups(values, what)
        checked = []
        for group, rows in zip(self.groups, values, strict=True):
            wanted, found = [len(choice.options) for choice in group.choices], [len(row) for row in rows]
            if found != wanted:
                expected = f"{len(wanted)} {self.choice_word}s of {_listed(wanted)} options"
                raise InputError(f"{what}: {group.name} must be {expected}, got {len(found)} of {_listed(found)}")
            named = zip(group.choices, rows, strict=True)
            checked.append(tuple(_finite(row, f"{what} of {choice.name}", minimum) for choice, row in named))
        return tuple(checked)

    def _require_groups(self, values: Sequence, what: str) -> None:
        if len(values) != len(self.groups):
            raise InputError(f"{what} has {len(values)} {self.group_word}s, expected {len(self.groups)}")


def _finite(row: Sequence[float], what: str, minimum: float | None) -> tuple[float, ...]:
    checked = tuple(float(value) for value in row)
    if all(map(math.isfinite, checked)) and (minimum is None or min(checked) >= minimum):
        return checked
    wrong = next(v for v in checked if not math.isfinite(v) or (minimum is not None and v < minimum))
    rule = "finite" if minimum is None else f"finite and at least {minimum:g}"
    raise InputError(f"{what} must be {rule}, got {wrong}")


def _listed(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values) or "nothing"
