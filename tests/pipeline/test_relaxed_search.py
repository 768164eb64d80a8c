"""A relaxed search keeps its limits whatever alpha says, and its result tells what was tried and repaired."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.relaxed import RelaxedEstimator
from deploynas.cli import main
from deploynas.errors import GateError
from deploynas.latency.table import LatencyTable
from deploynas.pipeline import relaxed as relaxed_pipeline
from deploynas.pipeline.relaxed import Relaxed, Start, Tried, best_tried, bisect_gamma, changed_decisions
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.within import Within
from deploynas.search import search
from deploynas.search.problem import Limit
from deploynas.search.result_file import SearchFile
from deploynas.space import Space
from deploynas.training.data import Subset, load_data
from deploynas.training.relaxed import AlphaFile, RelaxedSettings
from deploynas.training.relaxed_updates import updates_for
from deploynas.training.untrained import untrained_supernet


@pytest.fixture
def space(files: Path) -> Space:
    return Space.load(files / "mini.yaml")


@pytest.fixture
def start(space: Space, tmp_path: Path) -> Start:
    data = load_data("fashion-mini", space)
    few = replace(data, train=Subset(data.train.images, data.train.rows[:128]))
    return Start(untrained_supernet(space), "drawn", few, RunFolder(tmp_path / "run"))


def tried(space: Space, gamma: float, used: float) -> Tried:
    estimator = RelaxedEstimator.from_alpha(space, "rarts", np.zeros(len(space.decisions)))
    return Tried(gamma, AlphaFile.model_construct(), estimator, estimator.most_probable(), used)


def test_gamma_is_bisected_to_the_budget(space: Space) -> None:
    """Where the network's latency falls with gamma as 3 / (1 + gamma), it is as large as the budget at gamma = 2."""
    found = bisect_gamma(lambda gamma: tried(space, gamma, 3 / (1 + gamma)), start=1.0, tries=12)
    assert [one.gamma for one in found[:4]] == [0.0, 1.0, 4.0, 2.0]
    assert best_tried(found).gamma == 2.0 and len(found) == 4  # nothing of the budget is left
    found = bisect_gamma(lambda gamma: tried(space, gamma, 30 / (1 + gamma)), start=1.0, tries=12)
    assert found[-1] is best_tried(found) and 30 / 1.05 <= 1 + found[-1].gamma <= 30 / 0.95
    found = bisect_gamma(lambda gamma: tried(space, gamma, 1.2 / (1 + gamma)), start=1.0, tries=12)
    assert found[-1] is best_tried(found) and 1.2 / 1.05 <= 1 + found[-1].gamma <= 1.2 / 0.95


def test_no_more_is_tried_than_asked_for_and_nothing_if_none_is_needed(space: Space) -> None:
    assert len(bisect_gamma(lambda gamma: tried(space, gamma, 0.5), 1.0, 6)) == 1
    found = bisect_gamma(lambda gamma: tried(space, gamma, 2 + 1 / (1 + gamma)), 1.0, 4)
    assert [one.gamma for one in found] == [0.0, 1.0, 4.0, 16.0]
    assert best_tried(found).gamma == 16.0  # none fits: the one that misses by least


def test_of_an_alpha_the_argmax_scores_nothing_and_the_rest_less(space: Space, rng: np.random.Generator) -> None:
    alpha = rng.normal(size=len(space.decisions))
    shifted = alpha.copy()
    for where in space.decisions.slices:
        shifted[where] += rng.normal()
    one, same = (RelaxedEstimator.from_alpha(space, "rarts", own) for own in (alpha, shifted))
    best = one.most_probable()
    assert one.predict(best) == 0 and same.most_probable() == best
    networks = space.architectures(space.decisions.draw(30, rng))
    assert all(one.predict(network) < 0 for network in networks if network != best)
    assert [one.predict(n) for n in networks] == pytest.approx([same.predict(n) for n in networks])
    assert search(space, one, [Limit("params", 1e9)]).architecture == best  # the exact search finds the argmax


@pytest.mark.parametrize("seed", range(8))
def test_the_repair_keeps_every_limit(files: Path, space: Space, seed: int) -> None:
    """Whatever alpha says, here that everything dear is probable."""
    table, rng = LatencyTable.load(files / "table.json"), np.random.default_rng(seed)
    blocks = [[list(row) for row in stage] for stage in table.block_ms]
    dear = space.decisions.flat([[0.0, 1.0]] * len(blocks), blocks)
    estimator = RelaxedEstimator.from_alpha(space, "rarts", 9 * dear + rng.normal(size=len(dear)))
    limits = [Limit(table, float(rng.uniform(0.6, 1.2))), Limit("params", 12_000)]
    for found in search(space, estimator, limits, top=3):
        assert table.predict(found.architecture) <= limits[0].budget
        assert found.costs.params <= 12_000 and found.accuracy is None


def test_what_a_repair_changed_is_told_decision_by_decision(space: Space) -> None:
    before, after = space.architecture([[3], [0, 1]]), space.architecture([[3, 2], [1]])
    told = {one.decision: (one.before, one.after) for one in changed_decisions(space.decisions, before, after)}
    names, options = space.decisions.names, space.decisions.groups[1].choices[0].options
    assert told[names[0]] == ("1", "2") and told[names[1]] == ("2", "1")
    assert told[names[space.decisions.column(0, 1)]][0] is None
    assert told[names[space.decisions.column(1, 1)]][1] is None
    assert told[names[space.decisions.column(1, 0)]] == (options[0].label, options[1].label)
    assert len(told) == 5 and not changed_decisions(space.decisions, before, before)


@pytest.mark.parametrize("rule", ["rarts", "darts"])
def test_every_gamma_is_kept_and_another_budget_finds_it(files: Path, start: Start, rule, monkeypatch) -> None:
    table = LatencyTable.load(files / "table.json")
    settings = RelaxedSettings(updates_for(rule), epochs=1, batch=32)
    outcome = Relaxed(start, Within((), [Limit(table, 0.7)]), settings, tries=3).search()
    assert outcome.tried[0].gamma == 0 and not outcome.tried[0].fits
    assert len(list(start.run.relaxed.iterdir())) == len(outcome.tried) == 3
    record = outcome.record(outcome.chosen.network)
    assert (record.updates, record.gamma, record.repaired) == (rule, outcome.chosen.gamma, [])
    assert record.steps == outcome.chosen.alpha.steps == 2
    for one in record.tried:
        (latency,) = one.expected
        assert latency.most_probable == table.predict(start.space.architecture(one.most_probable))
        assert latency.unit == "ms" and one.within == (latency.most_probable <= 0.7)
    expected = [one.expected[0].expected for one in sorted(record.tried, key=lambda one: one.gamma)]
    assert expected == sorted(expected, reverse=True)  # the larger gamma, the less is expected
    searched = []
    monkeypatch.setattr(
        relaxed_pipeline, "relax", lambda task, folder, _: searched.append(folder) or _read(folder / "alpha.json")
    )
    again = Relaxed(start, Within((), [Limit(table, 0.7)]), settings, tries=3).search()
    assert [one.network for one in again.tried] == [one.network for one in outcome.tried] and len(searched) == 3
    Relaxed(start, Within((), [Limit(table, 0.69)]), settings, tries=2).search()
    assert all(folder in start.run.relaxed.iterdir() for folder in searched)  # the budget names no folder


def _read(path: Path) -> AlphaFile:
    return AlphaFile.model_validate_json(path.read_text())


def test_a_budget_that_no_network_keeps_is_named_before_anything_is_learned(files: Path, start: Start) -> None:
    table = LatencyTable.load(files / "table.json")
    with pytest.raises(GateError, match="no network is within"):
        Relaxed(start, Within((), [Limit(table, 0.01)])).search()
    assert not start.run.relaxed.exists()


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


SEARCH = ["search", "--solver", "rarts"]
RUN = [*SEARCH, "--updates", "darts", "--supernet", "w_star.safetensors", "--search-epochs", "1", "--gammas", "1"]


def test_the_command_leaves_a_network_within_the_budget_and_says_no_per_cent(deploynas) -> None:
    code, out, err = deploynas(*RUN, "--latency", "table.json:0.8", "--max-params", "20000", "--out", "found.json")
    assert code == 0, err
    assert "score, which only ranks" in out and "%" not in re.sub(r"± \S+ %", "", out)
    assert "gamma 0," in err and "; taken" in err and "it only ranks" in err
    document = SearchFile.load("found.json")
    (network,) = document.networks
    assert network.accuracy is None and all(use.predicted <= use.budget for use in network.limits)
    assert document.relaxed is not None and document.provenance["solver"] == "rarts"
    assert [own.name for own in document.relaxed.tried[0].expected] == [use.name for use in network.limits]
    estimator = load_estimator("found.estimator.json")
    assert isinstance(estimator, RelaxedEstimator) and estimator.scale == "ordinal"
    assert network.score == estimator.predict(document.network(1))
    before = {path: path.stat().st_mtime_ns for path in Path("relaxed").rglob("alpha.json")}
    code, out, err = deploynas(
        *RUN, "--latency", "table.json:0.8", "--max-params", "20000", "--out", "found.json", "--json"
    )
    assert code == 0 and json.loads(out)["relaxed"] == document.relaxed.model_dump()
    assert before == {path: path.stat().st_mtime_ns for path in Path("relaxed").rglob("alpha.json")}
    code, out, _ = deploynas("explain", "found.estimator.json")
    assert code == 0 and "%" not in out and "point" not in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([*SEARCH, "--latency", "table.json:1", "--out", "x.json"], "starts from a supernet, or from scratch"),
        ([*RUN, "--latency", "table.json:1"], "beside the result"),
        ([*RUN, "--out", "x.json"], "nothing limits the network"),
        ([*RUN, "--latency", "table.json", "--out", "x.json"], "has no budget"),
        ([*RUN, "--latency", "table.json:1", "--estimator", "estimator.json"], "takes no `--estimator`"),
        ([*RUN, "--latency", "table.json:1", "--frontier"], "takes no `--frontier`"),
        (["search", "--estimator", "estimator.json", "--updates", "darts"], "`--updates` is for `--solver rarts`"),
        ([*RUN, "--nu", "fixed"], "`--nu` is for `--solver nasi`"),
        ([*RUN, "--space", "fashion", "--latency", "table.json:1", "--out", "x.json"], "another search space"),
    ],
)
def test_what_does_not_go_together_is_refused(deploynas, arguments: list[str], why: str) -> None:
    code, _, err = deploynas(*arguments)
    assert code == 2 and why in err
