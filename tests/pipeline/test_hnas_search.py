"""HNAS as a search: within the limits, validations counted, and a result that says what it is."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deploynas.accuracy.refinement import MeasuredNetwork
from deploynas.accuracy.training_free.hnas import HnasSettings, PoolScores
from deploynas.cli import main
from deploynas.errors import GateError, InputError
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.goal import AtMost, NearBest
from deploynas.pipeline.hnas import Hnas
from deploynas.pipeline.measured_networks import MeasuredNetworks
from deploynas.pipeline.search_request import BudgetedTable
from deploynas.pipeline.supernet import open_supernet
from deploynas.pipeline.within import Within
from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Limit
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture, Space

MU, NU = 1.0, 16.0
SETTINGS = HnasSettings(pool=30, validations=8)
RUN = ["search", "--solver", "hnas", "--supernet", "w_star.safetensors"]


def scores(architecture: Architecture) -> tuple[float, float]:
    """Of every network its own: kappa and M."""
    row = architecture.space.rows([architecture])[0]
    rng = np.random.default_rng(row.tolist())
    return float(np.exp(rng.normal(4.0, 1.0))), float(rng.uniform(2.0, 6.0))


class Laboratory:
    """Accuracies that fall with the objective at MU and NU."""

    def __init__(self) -> None:
        self.asked = list[Architecture]()

    def measure(self, architectures: Sequence[Architecture], on_progress: OnProgress = silent) -> list[MeasuredNetwork]:
        self.asked += architectures
        return [MeasuredNetwork(one, 0.9 * float(np.exp(-_objective(one) / 200)), 0.01) for one in architectures]


def _objective(architecture: Architecture) -> float:
    kappa, metric = scores(architecture)
    return float(PoolScores(np.array([kappa]), np.array([metric])).objective(MU, NU)[0])


def budgeted(files: Path, budget_ms: float | None) -> BudgetedTable:
    return BudgetedTable(files / "table.json", LatencyTable.load(files / "table.json"), budget_ms)


@pytest.fixture
def space(files: Path) -> Space:
    return Space.load(files / "mini.yaml")


def test_every_network_is_within_the_budget_and_every_validation_is_counted(files: Path, space: Space) -> None:
    table, laboratory = budgeted(files, 1.0), Laboratory()
    within = Within.of([table], [Limit("params", 20_000)])
    document = Hnas(space, scores, laboratory, within, SETTINGS).search(top=3)
    assert document.hnas is not None
    told = document.hnas
    assert told.validations == len(told.proposals) == len(told.random) <= SETTINGS.validations
    assert told.scores == 2 * told.pool
    measured = {str(one.choices) for one in (*told.proposals, *told.random)}
    assert len(laboratory.asked) == len(set(laboratory.asked)) == len(measured)
    assert all(table.table.predict(one) <= 1.0 for one in laboratory.asked)
    assert all(use.predicted <= use.budget for network in document.networks for use in network.limits)
    accuracies = sorted((one.measured_accuracy for one in told.proposals), reverse=True)
    assert [network.measured_accuracy for network in document.networks] == accuracies[:3]


def test_the_result_claims_nothing_that_is_not_known(files: Path, space: Space, tmp_path: Path) -> None:
    document = Hnas(space, scores, Laboratory(), Within.of([budgeted(files, 1.2)], []), SETTINGS).search()
    document.save(tmp_path / "found.json")
    read = SearchFile.load(tmp_path / "found.json")
    assert read == document
    (network,), told = read.networks, read.hnas
    assert told is not None and read.estimator is None and read.provenance["solver"] == "hnas"
    assert (network.solver, network.optimal, network.gap) == ("hnas", False, None)
    assert (network.accuracy, network.accuracy_se, network.accuracy_interval) == (None, None, None)
    kappa, metric = scores(read.network(1))
    assert network.score == pytest.approx(-(kappa / metric + told.mu * (metric**2 - told.nu) ** 2))
    assert "kappa / M" in (read.ranked_by or "") and "`trace`" in (read.ranked_by or "")


def test_without_limits_and_with_the_same_seed(space: Space) -> None:
    """The answer is the best of the pool by what is planted, or next to it, and always the same."""
    first, second = (Hnas(space, scores, Laboratory(), settings=SETTINGS).search() for _ in range(2))
    assert first.networks == second.networks and first.hnas == second.hnas
    other = Hnas(space, scores, Laboratory(), settings=HnasSettings(pool=30, validations=8, seed=1)).search()
    assert other.hnas != first.hnas


def test_a_budget_that_no_network_keeps_is_named_before_anything_is_scored(files: Path, space: Space) -> None:
    laboratory = Laboratory()
    with pytest.raises(GateError, match="no network is within"):
        Hnas(space, scores, laboratory, Within.of([budgeted(files, 0.01)], [])).search()
    assert not laboratory.asked


def test_every_table_needs_its_budget_and_no_budget_follows_from_an_accuracy(files: Path) -> None:
    assert Within.of([budgeted(files, None)], [], AtMost(1.5)).limits[0].budget == 1.5
    with pytest.raises(InputError, match="has no budget"):
        Within.of([budgeted(files, None)], [])
    with pytest.raises(InputError, match="without a budget of its own"):
        Within.of([budgeted(files, 1.0)], [], AtMost(1.5))
    with pytest.raises(InputError, match="does not follow from an accuracy"):
        Within.of([budgeted(files, 1.0)], [], NearBest())


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for name in ("mini.yaml", "table.json", "estimator.json", "w_star.safetensors", "w_star.json"):
        shutil.copy(files / name, tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


def test_the_command_scores_validates_and_says_what_it_spent(deploynas) -> None:
    few = ["--pool", "4", "--validations", "2", "--latency", "table.json:1.2", "--out", "found.json"]
    code, out, err = deploynas(*RUN, *few)
    assert code == 0, err
    assert "not proven optimal (hnas)" in out and "accuracy, measured" in out
    assert "8 scores of a pool of 4 networks" in err and re.search(r"\b[12] validations", err)
    assert "random networks of the pool" in err and "finetune found.json --supernet w_star.safetensors" in err
    document = SearchFile.load("found.json")
    (network,) = document.networks
    (again,) = MeasuredNetworks(open_supernet("w_star.safetensors")).measure([document.network(1)])
    assert (network.measured_accuracy, network.measured_accuracy_se) == (again.accuracy, again.se)
    code, out, err = deploynas(*RUN, *few, "--json")
    assert code == 0 and json.loads(out)["hnas"] == document.hnas.model_dump()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["search", "--solver", "hnas", "--latency", "table.json:1"], "needs a supernet"),
        ([*RUN, "--estimator", "estimator.json"], "takes no `--estimator`"),
        ([*RUN, "--mu", "2"], "`--mu` is for `--solver nasi`"),
        ([*RUN, "--frontier"], "takes no `--frontier`"),
        ([*RUN, "--top", "2", "--rerank", "w_star.safetensors"], "takes no `--rerank`"),
        ([*RUN, "--score", "synflow"], "synflow"),
        ([*RUN, "--latency", "table.json"], "has no budget"),
        ([*RUN, "--latency", "table.json", "--within", "1"], "does not follow from an accuracy"),
        ([*RUN, "--space", "fashion"], "its supernet"),
        (["search", "--estimator", "estimator.json", "--latency", "table.json:1", "--pool", "9"], "is for"),
    ],
)
def test_what_does_not_go_together_is_refused(deploynas, arguments: list[str], why: str) -> None:
    code, _, err = deploynas(*arguments)
    assert code == 2 and why in err
