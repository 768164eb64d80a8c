"""A CSV file as lines of named cells, and its mistakes, each with its line.

UTF-8, a comma between cells, double quotes around a cell that has a comma, names of columns in the first line. Mistakes
are collected and reported together, so that a file is corrected once and not once per mistake.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploynas.errors import InputError
from deploynas.parsing import shown

LONGEST = 240  # characters of a mistake, some of which quote the file
SHOWN = 10  # mistakes that are listed; the others are counted


@dataclass(frozen=True)
class CsvLine:
    """One record: the number of the line where it begins, and its cells by column."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True)
class CsvFile:
    name: str  # without folders
    sha256: str
    columns: tuple[str, ...]
    lines: tuple[CsvLine, ...]

    @classmethod
    def read(cls, path: Path) -> CsvFile:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        text = _decoded(content, path)
        mistakes = Mistakes(path)
        records = list(_records(text, path))
        if not records:
            raise InputError(f"{path}: empty", hint="the first line names the columns, each other line has a network")
        columns = _columns(records[0][1], path)
        lines = []
        for number, cells in records[1:]:
            if len(cells) == len(columns):
                lines.append(CsvLine(number, dict(zip(columns, (cell.strip() for cell in cells), strict=True))))
            else:
                mistakes.add(number, f"{len(cells)} cells, but the first line names {len(columns)} columns")
        mistakes.raise_any()
        if not lines:
            raise InputError(f"{path}: no line after the names of the columns")
        return cls(path.name, hashlib.sha256(content).hexdigest(), columns, tuple(lines))


@dataclass
class Mistakes:
    """What is wrong with a file, line by line."""

    path: Path
    found: list[tuple[int, str]] = field(default_factory=list)
    hint: str | None = None  # of the first that has one

    def add(self, line: int, message: str, hint: str | None = None) -> None:
        self.found.append((line, shown(message, LONGEST)))
        self.hint = self.hint or hint

    def raise_any(self) -> None:
        if not self.found:
            return
        listed = [f"  {self.path.name}:{line}: {message}" for line, message in sorted(self.found)[:SHOWN]]
        if len(self.found) > SHOWN:
            listed.append(f"  and {len(self.found) - SHOWN} more")
        count = "1 mistake" if len(self.found) == 1 else f"{len(self.found)} mistakes"
        raise InputError(f"{self.path} has {count}:\n" + "\n".join(listed), hint=self.hint)


def number_in(cell: str) -> float | None:
    """A finite number; None if it is none."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8", hint="save it as CSV in UTF-8") from error


def _records(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """With the number of the line where each begins; a cell in quotes may go over several lines."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        begins = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{path}:{begins}: not valid CSV: {error}",
                hint='a cell with a comma or a quote stands in double quotes, inner ones doubled: "{""ks"": [3]}"',
            ) from error
        if cells:  # not an empty line
            yield begins, cells


def _columns(header: Sequence[str], path: Path) -> tuple[str, ...]:
    columns = tuple(name.strip() for name in header)
    if len(columns) == 1 and any(mark in columns[0] for mark in ";\t"):
        raise InputError(f"{path}: one column, `{columns[0][:60]}`", hint="cells are divided by commas")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise InputError(f"{path}: several columns are named `{twice[0]}`")
    return columns
