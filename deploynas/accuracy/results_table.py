"""Measured networks from a CSV file: which column holds what, in which unit, and each network once.

A network that is there several times is averaged, if its accuracies agree. Networks that are not of the space,
accuracies that contradict each other and cells that are no numbers are mistakes; all of them are named by line.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from deploynas.accuracy.results_csv import CsvFile, CsvLine, Mistakes, number_in
from deploynas.errors import InputError
from deploynas.provenance import ResultsRecord
from deploynas.space import Architecture, Space

Unit = Literal["percent", "fraction"]

ARCHITECTURES = ("architecture", "architectures", "arch", "network")
ACCURACIES = ("accuracy", "acc", "top1", "top_1")  # each also with PERCENT
WEIGHT, STANDARD_ERROR = "weight", "standard_error"
PERCENT = "_percent"
TOLERANCE = 0.005  # of accuracy, between repeated measurements without standard errors
CONTRADICTION = 4.0  # standard errors of a difference
GROUPS = "+"  # joins the groups of one row


@dataclass(frozen=True)
class ResultsFormat:
    """Where a file has what; a column that is None is looked for by its usual names."""

    architectures: str | None = None
    accuracy: str | None = None
    weight: str | None = None
    standard_error: str | None = None
    group: str | None = None  # None: there are no groups
    unit: Unit | None = None  # of accuracies; None: told by the name of the column, or by the values
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance <= 1:
            raise InputError(f"a tolerance is a fraction of accuracy, 0 to 1, got {self.tolerance}")


@dataclass(frozen=True)
class ResultsTable:
    """Different networks of a space with what was measured of each. Accuracies are fractions."""

    space: Space
    architectures: tuple[Architecture, ...]
    accuracies: np.ndarray
    record: ResultsRecord
    weights: np.ndarray | None = None
    standard_errors: np.ndarray | None = None
    groups: tuple[frozenset[str], ...] = ()  # of every network; empty: there are none

    def __len__(self) -> int:
        return len(self.architectures)

    def masks(self) -> dict[str, np.ndarray]:
        """Which networks are of each group; one may be of several."""
        names = sorted(frozenset[str]().union(*self.groups))
        return {name: np.array([name in own for own in self.groups]) for name in names}

    def only(self, mask: np.ndarray) -> ResultsTable:
        """Some of its networks."""
        return replace(
            self,
            architectures=tuple(itertools.compress(self.architectures, mask)),
            accuracies=self.accuracies[mask],
            weights=None if self.weights is None else self.weights[mask],
            standard_errors=None if self.standard_errors is None else self.standard_errors[mask],
            groups=tuple(itertools.compress(self.groups, mask)),
        )

    @classmethod
    def read(cls, path: str | Path, space: Space, format: ResultsFormat | None = None) -> ResultsTable:
        file, format = CsvFile.read(Path(path)), format or ResultsFormat()
        columns = _Columns.found(file, format)
        mistakes = Mistakes(Path(path))
        rows = [row for line in file.lines if (row := _row(line, columns, space, mistakes)) is not None]
        rows = _as_fractions(rows, columns, format.unit, mistakes)
        networks: dict[Architecture, list[_Row]] = {}
        for row in rows:
            same = networks.setdefault(row.architecture, [])
            _note_contradictions(row, same, format.tolerance, mistakes)
            same.append(row)
        mistakes.raise_any()
        merged = [_merged(same) for same in networks.values()]
        record = ResultsRecord(
            file=file.name, sha256=file.sha256, rows=len(rows), networks=len(merged), groups=format.group
        )
        return cls(
            space,
            tuple(row.architecture for row in merged),
            np.array([row.accuracy for row in merged]),
            record,
            np.array([row.weight for row in merged]) if columns.weight else None,
            np.array([row.standard_error for row in merged], dtype=float) if columns.standard_error else None,
            tuple(row.groups for row in merged) if columns.group else (),
        )


@dataclass(frozen=True)
class _Columns:
    """Names of columns that are there."""

    architectures: str
    accuracy: str
    weight: str | None
    standard_error: str | None
    group: str | None

    @classmethod
    def found(cls, file: CsvFile, format: ResultsFormat) -> _Columns:
        accuracies = [*ACCURACIES, *(name + PERCENT for name in ACCURACIES)]
        return cls(
            _required(file, format.architectures, ARCHITECTURES, "--architectures"),
            _required(file, format.accuracy, accuracies, "--accuracy"),
            _optional(file, format.weight, [WEIGHT], "--weight"),
            _optional(file, format.standard_error, [STANDARD_ERROR, STANDARD_ERROR + PERCENT], "--standard-error"),
            _optional(file, format.group, [], "--group"),
        )


def _optional(file: CsvFile, asked: str | None, usual: Sequence[str], option: str) -> str | None:
    if asked is not None:
        if asked not in file.columns:
            raise InputError(f"{file.name} has no column `{asked}`", hint=f"its columns: {', '.join(file.columns)}")
        return asked
    there = [column for column in file.columns if column.lower() in usual]
    if len(there) > 1:
        named = " and ".join(f"`{column}`" for column in there)
        raise InputError(f"{file.name} has the columns {named}", hint=f"`{option} COLUMN` says which one counts")
    return there[0] if there else None


def _required(file: CsvFile, asked: str | None, usual: Sequence[str], option: str) -> str:
    found = _optional(file, asked, usual, option)
    if found is None:
        named = ", ".join(f"`{name}`" for name in usual)
        raise InputError(
            f"{file.name} has no column {named}",
            hint=f"`{option} COLUMN` names it; its columns: {', '.join(file.columns)}",
        )
    return found


@dataclass(frozen=True)
class _Row:
    line: int
    architecture: Architecture
    accuracy: float
    weight: float = 1.0
    standard_error: float | None = None
    groups: frozenset[str] = frozenset()


def _row(line: CsvLine, columns: _Columns, space: Space, mistakes: Mistakes) -> _Row | None:
    """What a line says, numbers as they are written; None if something is wrong with it."""
    before = len(mistakes.found)
    architecture = None
    try:
        architecture = Architecture.parse(line.cells[columns.architectures], space)
    except InputError as error:
        mistakes.add(line.number, f"not a network of space `{space.name}`: {error.message}", error.hint)

    def number(column: str, least: float | None = None) -> float:
        value = number_in(line.cells[column])
        if value is None or (least is not None and value <= least):
            wanted = "a number" if least is None else f"a number above {least:g}"
            mistakes.add(line.number, f"`{column}` must be {wanted}, got `{line.cells[column][:40]}`")
        return value or 0.0

    accuracy = number(columns.accuracy)
    weight = number(columns.weight, 0.0) if columns.weight else 1.0
    standard_error = number(columns.standard_error, 0.0) if columns.standard_error else None
    groups = frozenset[str]()
    if columns.group:
        groups = frozenset(name.strip() for name in line.cells[columns.group].split(GROUPS))
        if "" in groups:
            mistakes.add(line.number, f"`{columns.group}` must name a group, or several joined by `{GROUPS}`")
    if architecture is None or len(mistakes.found) > before:
        return None
    return _Row(line.number, architecture, accuracy, weight, standard_error, groups)


def _as_fractions(rows: Sequence[_Row], columns: _Columns, asked: Unit | None, mistakes: Mistakes) -> list[_Row]:
    unit = asked or _unit_of(rows, columns.accuracy, mistakes)
    most = {"percent": 100.0, "fraction": 1.0}[unit]
    of_error = columns.standard_error or ""
    error_most = 100.0 if of_error.lower().endswith(PERCENT) else most
    kept = []
    for row in rows:
        if not 0 <= row.accuracy <= most:
            words = {"percent": "per cent (0 to 100)", "fraction": "a fraction (0 to 1)"}[unit]
            mistakes.add(row.line, f"`{columns.accuracy}` {row.accuracy:g} is not {words}")
        error = None if row.standard_error is None else row.standard_error / error_most
        kept.append(_Row(row.line, row.architecture, row.accuracy / most, row.weight, error, row.groups))
    return kept


def _unit_of(rows: Sequence[_Row], column: str, mistakes: Mistakes) -> Unit:
    """Per cent by name, else by value: all at most 1, or all above. A mixture is nobody's to guess."""
    if column.lower().endswith(PERCENT):
        return "percent"
    small, large = (next((r for r in rows if (r.accuracy > 1) == above), None) for above in (False, True))
    if small and large:
        mistakes.add(
            max(small.line, large.line),
            f"`{column}` has values up to 1 (line {small.line}: {small.accuracy:g}) and above 1 (line {large.line}: "
            f"{large.accuracy:g}), so it may be fractions or per cent",
            "`--percent` or `--fraction` says which",
        )
    return "percent" if large else "fraction"


def _note_contradictions(row: _Row, same: Sequence[_Row], tolerance: float, mistakes: Mistakes) -> None:
    """The first earlier row of the same network whose accuracy cannot be that of this one."""
    for other in same:
        allowed, hint = tolerance, f"`--tolerance POINTS` allows more than {100 * tolerance:g} points"
        if row.standard_error is not None and other.standard_error is not None:
            allowed = CONTRADICTION * float(np.hypot(row.standard_error, other.standard_error))
            hint = f"repeated measurements may differ by {CONTRADICTION:g} standard errors of their difference"
        if abs(row.accuracy - other.accuracy) > allowed:
            said = f"{100 * other.accuracy:.4g} % there, {100 * row.accuracy:.4g} % here"
            mistakes.add(row.line, f"contradicts line {other.line}, the same network: {said}", hint)
            return


def _merged(same: Sequence[_Row]) -> _Row:
    """The weighted mean; with standard errors, each measurement counts by its inverse variance too."""
    first = same[0]
    if len(same) == 1:
        return first
    weights = np.array([row.weight for row in same])
    errors = np.array([row.standard_error for row in same], dtype=float)
    known = first.standard_error is not None
    share = weights / errors**2 if known else weights
    share = share / share.sum()
    return _Row(
        first.line,
        first.architecture,
        float(share @ [row.accuracy for row in same]),
        float(weights.sum()),
        float(np.sqrt((share**2) @ errors**2)) if known else None,
        frozenset(itertools.chain.from_iterable(row.groups for row in same)),
    )
