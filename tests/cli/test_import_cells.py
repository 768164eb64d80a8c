"""`deploynas import nasbench201` and what follows it, as users type it."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
from pathlib import Path

import pytest

import deploynas as dn
from deploynas.cli import main


@pytest.fixture
def package(tmp_path) -> Path:
    """A folder with results in which 3x3 convolutions help, and two in a row help more."""
    cells = {}
    for digits in itertools.product("01234", repeat=6):
        cell = "".join(digits)
        accuracy = 60 + 3 * cell.count("3") + 4 * (cell[0] == cell[2] == "3") - 2 * cell.count("0")
        cells[cell] = {"val_acc": [accuracy - 0.1, accuracy + 0.1]}
    (tmp_path / "cifar10.pkl").write_bytes(pickle.dumps(cells))
    return tmp_path


def run(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["deploynas", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0), *capsys.readouterr()


def test_from_measured_cells_to_the_best_one(package, monkeypatch, capsys):
    monkeypatch.chdir(package)
    code, out, err = run(monkeypatch, capsys, "import", "nasbench201", package, "--cells", 400)
    assert code == 0 and "400" in out
    assert "wrote nasbench201-cifar10.csv" in err and "--space nasbench201 --method fourier" in err
    code, _, err = run(monkeypatch, capsys, "import", "nasbench201", package)
    assert code == 2 and "is there already" in err
    code, out, err = run(
        monkeypatch, capsys, "estimate", "--from", "nasbench201-cifar10.csv", "--space", "nasbench201",
        "--method", "fourier", "--json",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    assert told["method"] == "fourier" and told["validation"]["kendall_tau"] > 0.95
    estimator = dn.load_estimator("nasbench201-cifar10.estimator.json")
    found = dn.search(estimator.space, estimator, [dn.Limit("params", 1e9)])
    assert set(str(found.architecture).replace("|", " ").replace("+", " ").split()) == {
        f"nor_conv_3x3~{node}" for node in range(3)
    }


def test_a_checkpoint_is_asked_for_where_it_is_missing(monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "import", "ofa")
    assert code == 2 and "needs the checkpoint" in err
