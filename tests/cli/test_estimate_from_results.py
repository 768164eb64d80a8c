"""`estimate --from` as users type it: from a CSV file to a search, without PyTorch; bad files leave nothing behind."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import deploynas as dn
from deploynas.cli import main
from deploynas.search.result_file import SearchFile
from deploynas.space.once_for_all import to_json

ROOT = Path(__file__).parents[2]
NETWORKS = 250  # more than a sum over the decisions of the space has coefficients


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    def run(*arguments: object) -> Outcome:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["deploynas", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


def write(path: Path, columns: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture
def results(tmp_path) -> Path:
    """Accuracies that grow with parameters, of networks in Once-for-all's JSON, each of one of two searches."""
    space, rng = dn.Space.load("ofa-mbv3"), np.random.default_rng(0)
    networks = [space.sample(rng) for _ in range(NETWORKS)]
    params = [dn.Costs.of(space, network).params for network in networks]
    searches = itertools.cycle(["first", "second"])
    rows = [[to_json(n), 70 + 1e-6 * p, search] for n, p, search in zip(networks, params, searches, strict=False)]
    return write(tmp_path / "results.csv", ["arch", "top1", "search"], [*rows, rows[0]])


ASKED = ("estimate", "--from", "results.csv", "--space", "ofa-mbv3", "--method", "bilinear")


def test_a_file_of_results_becomes_an_estimator_that_is_searched(call, results, tmp_path):
    credits = ("--about", "made-up top-1", "--source", "nobody", "--licence", "CC0-1.0")
    outcome = call(*ASKED, "--group", "search", *credits, "--out", "e.json")
    assert outcome.code == 0, outcome.err
    assert "250 of 251 rows, 1 repeated" in outcome.out and "left out whole" in outcome.out
    assert "wrote e.json" in outcome.err and "next: deploynas explain e.json" in outcome.err
    file = json.loads((tmp_path / "e.json").read_text())
    assert file["results"]["rows"] == 251 and file["results"]["source"] == "nobody"
    assert [group["name"] for group in file["validation"]["groups"]] == ["first", "second"]
    found = call("search", "--estimator", "e.json", "--max-params", "5e6", "--out", "found.json")
    assert found.code == 0, found.err
    assert "accuracy: made-up top-1; (90 % interval)" in found.err and "nobody; CC0-1.0" in found.err
    assert "on 250 networks, left out in turn" in found.err and "each of 2 groups of `search`" in found.err
    record = SearchFile.load(tmp_path / "found.json")
    assert record.estimator_results.sha256 == file["results"]["sha256"]
    assert record.networks[0].accuracy == pytest.approx(0.70 + 1e-8 * record.networks[0].params, abs=1e-6)


def test_json_has_the_figures(call, results):
    document = json.loads(call(*ASKED, "--json").out)
    assert document["estimator"] == "results.estimator.json" and document["results"]["networks"] == 250
    assert document["validation"]["folds"] == 5 and document["validation"]["groups"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["estimate"], "one of them"),
        ([*ASKED, "--supernet", "run"], "one of them"),
        ([*ASKED, "--passes", "3"], "`--passes` is for `--supernet`"),
        (["estimate", "--supernet", "run", "--group", "x"], "`--group` is for `--from`"),
        (["estimate", "--from", "results.csv"], "needs the space"),
        ([*ASKED, "--method", "contributions"], "measured in a supernet"),
        ([*ASKED, "--group", "colour"], "no column `colour`"),
        ([*ASKED, "--fraction"], "is not a fraction"),
        (["estimate", "--from", "missing.csv", "--space", "ofa-mbv3"], "cannot be read"),
        (["estimate", "--from", "results.csv", "--space", "imagenet"], "cannot tell"),
        ([*ASKED, "--out", "results.csv"], "would be overwritten"),
    ],
)
def test_bad_usage_and_bad_files_exit_with_2_and_write_nothing(call, results, tmp_path, arguments, said):
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    outcome = call(*arguments)
    assert outcome.code == 2 and outcome.out == "" and said in outcome.err and "Traceback" not in outcome.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_network_outside_the_space_is_named_by_its_line(call, results, tmp_path):
    with results.open("a") as file:
        file.write('"{""ks"": [9], ""e"": [3], ""d"": [2]}",75.0,first\n')
    outcome = call(*ASKED)
    assert outcome.code == 2 and "results.csv:253: not a network of space `ofa-mbv3`" in outcome.err
    assert not list(tmp_path.glob("*.json"))


def test_nothing_of_it_needs_torch(results, tmp_path):
    """As on a target machine, where torch and scikit-learn cannot be imported: estimate, search by a shipped name."""
    blocked = tmp_path / "blocked"
    for name in ("torch", "timm", "sklearn", "safetensors", "torchvision"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text("raise ImportError('not installed on the target')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(blocked), str(ROOT)])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "deploynas", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    made = run("estimate", "--from", "results.csv", "--space", "ofa-mbv3", "--out", "e.json")
    assert made.returncode == 0, made.stderr
    found = run("search", "--estimator", "ofa-mbv3-imagenet", "--max-macs", "2e8", "--out", "found.json")
    assert found.returncode == 0, found.stderr
    assert "next, for its weights: deploynas import ofa ofa_mbv3_d234_e346_k357_w1.0 --data" in found.stderr
    assert "then: deploynas finetune found.json --supernet runs/ofa" in found.stderr
    explained = run("explain", "ofa-mbv3-imagenet", "--at", "found.json")
    assert explained.returncode == 0 and "Apache-2.0" in explained.stderr, explained.stderr


def test_a_search_with_a_shipped_estimator_records_its_name_not_where_it_is_installed(call, tmp_path):
    outcome = call("search", "--estimator", "ofa-mbv3-imagenet", "--max-macs", "2e8", "--out", "found.json")
    assert outcome.code == 0, outcome.err
    record = SearchFile.load(tmp_path / "found.json")
    assert record.estimator.path == "ofa-mbv3-imagenet" and record.estimator_results.licence == "Apache-2.0"
    assert str(ROOT) not in (tmp_path / "found.json").read_text()
    from deploynas.pipeline.sources import Sources

    # later steps find it again
    assert dn.load_estimator(Sources().with_search(tmp_path / "found.json").estimator).space.name == "ofa-mbv3"


def test_a_newcomer_is_told_of_what_ships(call, tmp_path):
    listed = call("devices")
    assert "ofa-mbv3-imagenet" in listed.err and "ofa-mbv3" in listed.err
    assert json.loads(call("devices", "--json").out)["estimators"][0]["name"] == "ofa-mbv3-imagenet"
    assert "--estimator ofa-mbv3-imagenet" in call("search", "--help").out
    unknown = call("search", "--estimator", "ofa", "--max-macs", "2e8")
    assert unknown.code == 2 and "ofa-mbv3-imagenet" in unknown.err


def test_after_a_profile_of_its_space_the_next_command_searches_with_it(tmp_path, monkeypatch):
    from deploynas.cli.next_commands import after_profile

    monkeypatch.chdir(tmp_path)
    said = after_profile(Path("my.json"), dn.Space.load("ofa-mbv3"), "ofa-mbv3")
    assert said == "deploynas search --estimator ofa-mbv3-imagenet --latency my.json"
    assert after_profile(Path("my.json"), dn.Space.load("fashion"), "fashion") == "deploynas train --space fashion"
