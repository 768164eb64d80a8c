"""An estimator that promises too much is measured where the search goes, until new networks are as expected."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.refinement import MeasuredNetwork
from deploynas.cli import main
from deploynas.errors import InputError
from deploynas.files import sha256_of
from deploynas.latency.table import LatencyTable
from deploynas.pipeline import refine as refine_module
from deploynas.pipeline.goal import AtMost
from deploynas.pipeline.measured_networks import MeasuredNetworks
from deploynas.pipeline.refine import NETWORKS, refine_where_it_searches
from deploynas.pipeline.search_request import BudgetedTable, SearchRequest
from deploynas.pipeline.supernet import TrainedSupernet, open_supernet
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture, Space

TOO_MUCH = 0.1


def shifted(estimator: BilinearEstimator, measured: Sequence[MeasuredNetwork]) -> BilinearEstimator:
    """The simplest refinement: by the mean error."""
    errors = [estimator.predict(network.architecture) - network.accuracy for network in measured]
    return replace(estimator, base=estimator.base - float(np.mean(errors)))


class Laboratory:
    """Measures what the estimator says less a constant, and a little noise that two networks in a row cancel."""

    def __init__(self, estimator: BilinearEstimator) -> None:
        self.estimator, self.seen = estimator, list[list[Architecture]]()

    def measure(self, architectures: Sequence[Architecture], on_progress: object) -> list[MeasuredNetwork]:
        self.seen.append(list(architectures))
        return [
            MeasuredNetwork(a, self.estimator.predict(a) - TOO_MUCH + 0.001 * (-1) ** i, 0.01)
            for i, a in enumerate(architectures)
        ]


@pytest.fixture
def question(monkeypatch) -> SearchRequest:
    monkeypatch.setattr(refine_module, "refine", shifted)
    space, rng = Space.load("fashion"), np.random.default_rng(0)
    shapes = [(s.max_depth, len(s.configs)) for s in space.stages]
    worth = [np.sort(rng.uniform(0, 0.01, shape)) for shape in shapes]
    costs = [np.sort(rng.uniform(0.1, 0.5, shape)) for shape in shapes]
    estimator = BilinearEstimator.from_arrays(space, 0.5, [[0.0] * len(s.depths) for s in space.stages], worth)
    table = LatencyTable.from_arrays(space, 0.1, costs)
    return SearchRequest(space, estimator, Path("e.json"), [BudgetedTable(Path("t.json"), table)], [])


def test_rounds_end_when_new_networks_of_the_frontier_are_as_expected(question: SearchRequest) -> None:
    laboratory = Laboratory(question.estimator)
    found = refine_where_it_searches(question, laboratory, 5)
    assert [made.networks for made in found.rounds] == [NETWORKS, NETWORKS]
    first, second = found.rounds
    assert first.mean_error == pytest.approx(TOO_MUCH) and not first.settled and first.coverage is None
    assert second.mean_error == pytest.approx(0, abs=1e-9) and second.settled
    assert first.rmse == pytest.approx((TOO_MUCH**2 + 0.001**2) ** 0.5)
    assert second.mean_error_se == pytest.approx(0.001 * (8 / 7) ** 0.5 / 8**0.5)  # by hand: eight times 0.001
    networks = [network for seen in laboratory.seen for network in seen]
    assert len(set(networks)) == len(networks) == 2 * NETWORKS
    validation = found.estimator.validation
    assert validation.frontier_networks == NETWORKS and validation.frontier_mean_error == second.mean_error
    assert found.estimator.predict(networks[0]) == pytest.approx(question.estimator.predict(networks[0]) - TOO_MUCH)
    assert refine_where_it_searches(question, Laboratory(question.estimator), 2).rounds == found.rounds
    with pytest.raises(InputError, match="only the second checks it"):
        refine_where_it_searches(question, laboratory, 1)


def test_the_first_round_cannot_end_it_since_it_checks_the_estimator_of_before(question: SearchRequest) -> None:
    right = Laboratory(replace(question.estimator, base=question.estimator.base + TOO_MUCH))
    first, second = refine_where_it_searches(question, right, 5).rounds
    assert first.settled and second.settled


def test_networks_are_spread_and_denser_around_the_answer(question: SearchRequest) -> None:
    given = question.tables[0]
    heaviest, smallest = (given.table.predict(n) for n in (question.space.heaviest(), question.space.smallest()))
    budget_ms = (heaviest + smallest) / 2
    asked = replace(question, goal=AtMost(budget_ms))
    first, _ = refine_where_it_searches(asked, Laboratory(question.estimator), 2).rounds
    latencies = [network.latency_ms for network in first.measured]
    assert latencies == sorted(latencies) and latencies[0] == pytest.approx(smallest)
    near = [ms for ms in latencies if budget_ms / 1.3 <= ms <= budget_ms * 1.3]
    assert len(near) >= NETWORKS / 2 and max(latencies) > 1.3 * budget_ms


class Counted:
    """In place of measuring: counts, and tells networks apart by their depths."""

    calls: ClassVar[int] = 0

    def __call__(self, supernet: TrainedSupernet, architecture: Architecture) -> tuple[float, float]:
        Counted.calls += 1
        return 0.1 + 0.01 * sum(architecture.depths), 0.005


@pytest.fixture
def counted(monkeypatch) -> type[Counted]:
    Counted.calls = 0
    count = Counted()
    monkeypatch.setattr(TrainedSupernet, "accuracy_alone", lambda self, architecture: count(self, architecture))
    return Counted


def test_a_network_is_measured_once_for_a_supernet(files: Path, tmp_path: Path, counted: type[Counted]) -> None:
    for name in ("w_star.safetensors", "w_star.json"):
        shutil.copy(files / name, tmp_path)
    supernet = open_supernet(tmp_path)
    two = [supernet.space.smallest(), supernet.space.heaviest()]
    first = MeasuredNetworks(supernet).measure(two)
    again = MeasuredNetworks(supernet).measure([*two, two[0]])
    assert again == [*first, first[0]] and counted.calls == 2
    kept = json.loads((supernet.samples_folder() / "networks.json").read_text())
    assert kept["supernet"] == supernet.identity and kept["space_hash"] == supernet.space.hash


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for path in files.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return run


def test_a_search_refines_its_estimator_and_names_the_refined_one(
    deploynas, tmp_path: Path, monkeypatch, counted: type[Counted]
) -> None:
    monkeypatch.setattr(refine_module, "refine", shifted)
    asked = ["search", "--estimator", "estimator.json", "--latency", "table.json"]
    code, said = deploynas(*asked, "--refine", "2", "--supernet", ".", "--out", "found.json")
    assert code == 0, said
    found, refined = SearchFile.load(tmp_path / "found.json"), tmp_path / "found.estimator.json"
    assert found.estimator.sha256 == sha256_of(refined) and "wrote found.estimator.json" in said
    assert f"refined with {counted.calls} networks of the frontier" in said
    assert sum(made.networks for made in found.refinement) == counted.calls
    (network,) = found.networks
    assert network.accuracy == load_estimator(refined).predict(found.architectures()[0])
    assert found.estimator_validation["frontier_networks"] == found.refinement[-1].networks
    made = counted.calls
    code, said = deploynas(*asked, "--refine", "2", "--supernet", ".", "--out", "again.json")
    again = SearchFile.load(tmp_path / "again.json")
    assert code == 0 and counted.calls == made
    assert again.networks == found.networks and again.refinement == found.refinement


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latency", "table.json", "--refine", "2", "--supernet", "."], "`--out found.json`"),
        (
            [
                "--latency",
                "table.json:1",
                "--latency",
                "table.json:1",
                "--refine",
                "2",
                "--supernet",
                ".",
                "-o",
                "f.json",
            ],
            "on the frontier of one table",
        ),
        (["--latency", "table.json", "--refine", "2", "--supernet", "nowhere", "-o", "f.json"], "no such file"),
    ],
)
def test_what_cannot_be_refined_is_refused(deploynas, arguments: list[str], message: str) -> None:
    code, said = deploynas("search", "--estimator", "estimator.json", *arguments)
    assert code == 2 and message in said
