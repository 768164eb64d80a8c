"""`deploynas search` from files to files: answers on stdout, exit codes with a meaning, short errors."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import deploynas as dn
from deploynas.accuracy.bilinear import StandardErrors
from deploynas.accuracy.estimator_file import Curve, EstimatorValidation
from deploynas.cli import main
from deploynas.search.result_file import SearchFile


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """An estimator and two tables of the fashion space."""
    folder, space, rng = tmp_path_factory.mktemp("search"), dn.Space.load("fashion"), np.random.default_rng(0)
    shapes = [(s.max_depth, len(s.configs)) for s in space.stages]
    estimator = dn.BilinearEstimator.from_arrays(
        space,
        0.8,
        [rng.normal(0, 0.01, len(s.depths)) for s in space.stages],
        [rng.normal(0, 0.01, shape) for shape in shapes],
        StandardErrors.checked(
            space, 0.0, [[0.001] * len(s.depths) for s in space.stages], [np.full(shape, 0.001) for shape in shapes]
        ),
    )
    estimator.save(folder / "e.json")
    for name in "ab":
        costs = [rng.uniform(0.1, 1.0, shape) for shape in shapes]
        dn.LatencyTable.from_arrays(space, 0.5, costs).save(folder / f"{name}.json")
    return folder


@pytest.fixture
def search(files, monkeypatch, capsys):
    def run(*arguments: str) -> Outcome:
        monkeypatch.chdir(files)
        monkeypatch.setattr(sys, "argv", ["deploynas", "search", "--estimator", "e.json", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


def document(outcome: Outcome) -> dict:
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_the_answer_is_that_of_the_library_and_the_file_says_where_it_came_from(search, files):
    outcome = search("--latency", "a.json:2.5", "--max-params", "200000", "--out", "found.json")
    assert outcome.code == 0
    assert "proven optimal" in outcome.out and "wrote found.json" in outcome.err
    space, table = dn.Space.load("fashion"), dn.LatencyTable.load(files / "a.json")
    estimator = dn.BilinearEstimator.load(files / "e.json")
    expected = dn.search(space, estimator, [dn.Limit(table, 2.5), dn.Limit("params", 200_000)])
    found = SearchFile.load(files / "found.json")
    assert found.architectures() == [expected.architecture]
    (network,) = found.networks
    assert dn.Architecture.parse(network.architecture, space) == expected.architecture
    assert network.accuracy == expected.accuracy
    assert network.accuracy_se == estimator.predict_se(expected.architecture)
    low, high = network.accuracy_interval
    assert low < network.accuracy < high
    assert f"{100 * network.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f})" in outcome.out
    assert [use.predicted for use in network.limits] == [
        table.predict(expected.architecture),
        dn.Costs.of(space, expected.architecture).params,
    ]
    assert found.tables[0].sha256 == hashlib.sha256((files / "a.json").read_bytes()).hexdigest()
    assert found.estimator.sha256 == hashlib.sha256((files / "e.json").read_bytes()).hexdigest()


def test_what_is_shown_is_what_to_expect_not_the_sum_that_was_maximised(search, files):
    """The sum promises 0.2 more than networks like these measured: nobody is told so, nor by how much sharing costs."""
    estimator = dn.BilinearEstimator.load(files / "e.json")
    curve = Curve(predicted=[0.0, 2.0], measured=[0.3, 1.3])  # half as steep: expected = 0.3 + 0.5 * predicted
    replace(estimator, validation=EstimatorValidation(networks=9, curve=curve)).save(files / "curved.json")
    tables = ["--latency", "a.json:2.5", "--latency", "b.json:2.5"]
    found = document(search("--estimator", "curved.json", *tables, "--json"))
    (shared,) = found["networks"]
    assert shared["accuracy"] == pytest.approx(0.3 + 0.5 * shared["score"])
    for own in found["each"]:
        assert own["loss"] == pytest.approx(0.5 * (own["own"]["score"] - shared["score"]))
    points = document(search("--estimator", "curved.json", "--latency", "a.json", "--frontier", "--json"))["frontier"]
    assert all(point["accuracy"] == pytest.approx(0.3 + 0.5 * point["score"]) for point in points)
    shown = search("--estimator", "curved.json", "--latency", "a.json:2.5")
    assert f"{100 * points[0]['score']:.1f} %" not in shown.out and "one-shot accuracy: with weights" in shown.err


def test_the_budget_may_come_with_the_table_or_as_an_option(search):
    one = document(search("--latency", "a.json:2.5", "--json"))
    other = document(search("--latency", "a.json", "--max-latency-ms", "2.5", "--json"))
    assert one["networks"] == other["networks"]


def test_without_a_budget_the_answer_is_the_knee_and_its_reason_is_said_and_stored(search, files):
    space, table = dn.Space.load("fashion"), dn.LatencyTable.load(files / "a.json")
    points = dn.frontier(space, dn.BilinearEstimator.load(files / "e.json"), table)
    outcome = search("--latency", "a.json", "--out", "knee.json")
    assert outcome.code == 0
    found = SearchFile.load(files / "knee.json")
    knee = points.knee(0.01)
    assert found.architectures() == [knee.architecture]
    times = table.predict(space.heaviest()) / knee.latency_ms
    words = (
        f"no budget given: {knee.latency_ms:.4g} ms, {times:.1f} times faster than the heaviest network, expected to"
    )
    assert found.budget_reason.startswith(words) and found.budget_reason in outcome.err
    # a table that was not profiled states no error, so no more than predicted is promised
    assert found.budget_ms == knee.latency_ms
    wider = document(search("--latency", "a.json", "--within", "3", "--json"))["networks"][0]
    assert wider["architecture"] == str(points.knee(0.03).architecture)


def test_the_fastest_network_of_an_accuracy(search, files):
    points = dn.frontier(
        dn.Space.load("fashion"), dn.BilinearEstimator.load(files / "e.json"), dn.LatencyTable.load(files / "a.json")
    )
    wanted = points[len(points) // 2].accuracy - 1e-6
    found = document(search("--latency", "a.json", "--min-accuracy", str(wanted), "--json"))
    assert found["networks"][0]["architecture"] == str(points.reaching(wanted).architecture)
    beyond = search("--latency", "a.json", "--min-accuracy", "1")
    assert beyond.code == 3 and "no network is expected to reach 100 %; the best, at" in beyond.err


def test_an_accuracy_under_a_further_limit_is_reached_too(search, files):
    """There is no frontier of two costs: the optima of some budgets stand in for it."""
    most = document(search("--latency", "a.json:1000", "--max-macs", "2e6", "--json"))["networks"][0]
    found = document(search("--latency", "a.json", "--max-macs", "2e6", "--within", "2", "--json"))["networks"][0]
    assert most["accuracy"] - 0.02 <= found["accuracy"] <= most["accuracy"]
    assert found["limits"][0]["predicted"] <= most["limits"][0]["predicted"] and found["macs"] <= 2e6


def test_a_budget_that_does_not_bind_and_a_faster_network_that_is_as_good_are_said(search, files):
    space = dn.Space.load("fashion")
    flat = dn.BilinearEstimator.from_arrays(
        space, 0.8, [[0.0] * len(s.depths) for s in space.stages],
        [[[0.0001 * c for c in range(len(s.configs))]] * s.max_depth for s in space.stages],
    )  # fmt: skip
    flat.save(files / "flat.json")
    outcome = search("--estimator", "flat.json", "--latency", "a.json:100", "--out", "flat-found.json")
    points = dn.frontier(space, flat, dn.LatencyTable.load(files / "a.json"))
    assert f"the best network needs {points[-1].latency_ms:.4g} of your 100 ms" in outcome.err
    as_good = SearchFile.load(files / "flat-found.json").as_good
    assert as_good.architecture == str(points.knee(0.0025).architecture)
    assert f"times faster: {as_good.latency_ms:.4g} ms" in outcome.err
    # following the advice leads there
    advised = outcome.err.split("--max-latency-ms ")[1].split("`")[0]
    followed = document(
        search("--estimator", "flat.json", "--latency", "a.json", "--max-latency-ms", advised, "--json")
    )
    assert followed["networks"][0]["architecture"] == as_good.architecture


def test_the_k_best_come_best_first(search):
    networks = document(search("--latency", "a.json:2.5", "--top", "5", "--json"))["networks"]
    accuracies = [network["accuracy"] for network in networks]
    assert len(networks) == 5 and accuracies == sorted(accuracies, reverse=True)
    assert "1: ir_" in search("--latency", "a.json:2.5", "--top", "5").out


def test_one_network_for_two_devices_and_what_each_loses_by_it(search):
    found = document(search("--latency", "a.json:2.5", "--latency", "b.json:2.5", "--json"))
    (shared,) = found["networks"]
    assert all(use["predicted"] <= use["budget"] for use in shared["limits"])
    for own in found["each"]:
        assert own["loss"] == pytest.approx(own["own"]["accuracy"] - shared["accuracy"])
        assert own["loss"] >= 0
    assert "loses by sharing" in search("--latency", "a.json:2.5", "--latency", "b.json:2.5").out


def test_one_network_each(search):
    found = document(search("--latency", "a.json:2.5", "--latency", "b.json:3", "--each", "--json"))
    alone = [document(search("--latency", t, "--json"))["networks"][0] for t in ("a.json:2.5", "b.json:3")]
    assert [own["own"]["choices"] for own in found["each"]] == [network["choices"] for network in alone]
    assert found["networks"] == []


def test_the_frontier_rises_and_can_be_thinned_and_cut_at_a_budget(search):
    whole = document(search("--latency", "a.json", "--frontier", "--json"))["frontier"]
    latencies, accuracies = zip(*((p["latency_ms"], p["accuracy"]) for p in whole), strict=True)
    assert list(latencies) == sorted(set(latencies)) and list(accuracies) == sorted(set(accuracies))
    thin = document(search("--latency", "a.json", "--frontier", "--thin", "4", "--json"))["frontier"]
    assert len(thin) <= 4 and thin[0] == whole[0] and thin[-1] == whole[-1]
    cut = document(search("--latency", "a.json:2.5", "--frontier", "--json"))["frontier"]
    assert cut == [point for point in whole if point["latency_ms"] <= 2.5]


def test_a_dry_run_shows_what_networks_cost_and_solves_nothing(search):
    outcome = search("--latency", "a.json:2.5", "--max-peak-memory-bytes", "1e6", "--dry-run")
    assert outcome.code == 0
    assert "smallest" in outcome.out and "heaviest" in outcome.out and "can be met" in outcome.err
    assert "ds_" not in outcome.out
    impossible = search("--latency", "a.json:0.6", "--dry-run", "--json")
    assert impossible.code == 3
    answer = json.loads(impossible.out)
    assert answer["feasible"] is False and "the fastest needs" in answer["reason"]


def test_an_infeasible_budget_exits_with_3_and_one_paragraph(search):
    outcome = search("--latency", "a.json:0.6")
    assert outcome.code == 3 and outcome.out == ""
    assert outcome.err.startswith("error: latency_ms on unnamed device: no network is within 0.6; the fastest needs")
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--latency", "a.json:0"], "must be positive"),
        (["--latency", "a.json:-3"], "must be positive"),
        (["--latency", "a.json:nan"], "must be positive"),
        (["--latency", "a.json:fast"], "not a budget in milliseconds"),
        (["--latency", "a.json", "--latency", "b.json:3"], "has no budget, and several tables need one each"),
        (["--latency", "a.json", "--latency", "b.json", "--within", "1"], "are for one `--latency TABLE`"),
        (["--latency", "a.json:3", "--min-accuracy", "0.8"], "without a budget of its own"),
        (["--latency", "a.json", "--min-accuracy", "0.8", "--within", "1"], "`--min-accuracy` and `--within` each"),
        (["--latency", "a.json", "--max-latency-ms", "3", "--within", "1"], "`--max-latency-ms` and `--within` each"),
        (["--latency", "a.json", "--min-accuracy", "77"], "a fraction above 0 and at most 1"),
        (["--latency", "a.json", "--within", "-1"], "0 or more"),
        (["--latency", "a.json", "--frontier", "--within", "1"], "of all accuracies"),
        (["--max-params", "1e5", "--within", "1"], "are for one `--latency TABLE`"),
        (["--latency", "nowhere.json:3"], "no such file"),
        (["--latency", "e.json:3"], "expected a file of schema"),
        (["--latency", "a.json:3", "--space", "imagenet"], "another search space"),
        (["--latency", "a.json:3", "--solver", "magic"], "no solver `magic`"),
        (["--latency", "a.json:3", "--max-latency-ms", "3"], "without a budget of its own"),
        (["--latency", "a.json:3", "--each"], "needs several devices"),
        (["--latency", "a.json:3", "--thin", "3"], "is for `--frontier`"),
        (["--latency", "a.json:3", "--top", "3", "--frontier"], "different answers"),
        (["--latency", "a.json:3", "--measure", "run"], "is for the networks of `--top K`"),
        (["--latency", "a.json", "--frontier", "--max-macs", "1e7"], "would be a second"),
        ([], "nothing limits the network"),
    ],
)
def test_bad_usage_exits_with_2_and_one_paragraph(search, arguments, message):
    outcome = search(*arguments)
    assert outcome.code == 2 and outcome.out == ""
    assert message in outcome.err and "Traceback" not in outcome.err


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from deploynas.cli import search; sys.argv = ['search', '--help']\n"
        "try: search.command()\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'scipy', 'torch', 'onnxruntime', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
