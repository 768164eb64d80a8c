"""Measured cells of NAS-Bench-201 as a file of results, which `estimate --from` reads. Needs no torch."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deploynas.accuracy.nasbench201 import CellResults, DataSet, written
from deploynas.errors import InputError
from deploynas.files import write_bytes

SPACE = "nasbench201"  # whose networks these are


@dataclass(frozen=True)
class ImportedCells:
    path: Path
    data: DataSet
    cells: int
    best: str  # of those written, with its mean accuracy
    best_accuracy: float


def import_nasbench201(
    data: DataSet, source: str | Path | None, out: Path, cells: int | None = None, seed: int = 0
) -> ImportedCells:
    """Every cell, or so many drawn at random, with the mean of its trainings and the standard error of that."""
    results = CellResults.read(data, source)
    if cells is not None and not 1 <= cells <= len(results):
        raise InputError(f"NAS-Bench-201 has {len(results)} cells, {cells} were asked for")
    drawn = np.arange(len(results))
    if cells is not None:
        drawn = np.sort(np.random.default_rng(seed).choice(len(results), cells, replace=False))
    accuracies, errors = results.mean()[drawn], results.standard_errors()[drawn]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["architecture", "accuracy", "standard_error"])
    for number, accuracy, error in zip(drawn, accuracies, errors, strict=True):
        table.writerow([written(results.operations[number]), f"{accuracy:.6f}", f"{max(error, 1e-6):.6f}"])
    write_bytes(out, text.getvalue().encode())
    best = int(np.argmax(accuracies))
    return ImportedCells(out, data, len(drawn), written(results.operations[drawn[best]]), float(accuracies[best]))
