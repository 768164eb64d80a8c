"""Ensembles as a search: within the budget, scored as they are, and beside the best single network, always."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from keys import BROUGHT, key_pair
from tiny_spaces import CELLS

from deploynas.accuracy.ensemble_scores import error
from deploynas.accuracy.posterior import Posterior, PosteriorSettings
from deploynas.cli import main, search_ensembles
from deploynas.errors import GateError, InputError
from deploynas.export.ensemble_file import softmax
from deploynas.export.verification import open_session
from deploynas.latency.table import LatencyTable
from deploynas.pipeline import ensemble_result, ensembles
from deploynas.pipeline.ensembles import SAMPLINGS, EnsembleSearch, EnsembleWishes, Sampling
from deploynas.pipeline.network_predictions import NetworkPredictions
from deploynas.pipeline.supernet import open_supernet
from deploynas.search.joint_budget import JointBudget, Running
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import save_network

IMAGES, CLASSES = 200, 10
LABELS = np.random.default_rng(0).integers(CLASSES, size=IMAGES)
RUN = ["search", "--ensemble", "2", "--serial", "--supernet", "w_star.safetensors", "--latency", "table.json:1.5"]


class Planted:
    """Every network is right about images of its own, half of all; `perfect` about all."""

    judged_on = "test"

    def __init__(self, perfect: Architecture | None = None) -> None:
        self.perfect, self.asked = perfect, list[tuple[Architecture, str]]()

    def of(self, architecture: Architecture, images: str = "validation") -> np.ndarray:
        self.asked.append((architecture, images))
        rng = np.random.default_rng(architecture.space.rows([architecture])[0].tolist())
        right = np.ones(IMAGES, bool) if architecture == self.perfect else rng.random(IMAGES) < 0.5
        said = np.where(right, LABELS, (LABELS + rng.integers(1, CLASSES, IMAGES)) % CLASSES)
        probabilities = np.full((IMAGES, CLASSES), 0.4 / (CLASSES - 1))
        probabilities[np.arange(IMAGES), said] = 0.6
        return probabilities

    def labels(self, images: str = "validation") -> np.ndarray:
        return LABELS


@pytest.fixture
def space(files: Path) -> Space:
    return Space.load(files / "mini.yaml")


def search(files: Path, space: Space, planted: Planted, wishes: EnsembleWishes, running: Running = "serial"):
    budget = JointBudget.of(
        space, LatencyTable.load(files / "table.json"), 1.8 if running == "serial" else 0.9, running
    )
    asked = EnsembleSearch(Posterior.uniform(space.decisions), planted, budget, wishes, space)
    return (*asked.search(), budget)


@pytest.mark.parametrize("running", ["serial", "parallel"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_way_keeps_the_budget_and_tells_what_it_found(
    files: Path, space: Space, sampling: Sampling, running: Running
) -> None:
    planted = Planted()
    members, record, budget = search(files, space, planted, EnsembleWishes(3, sampling, draws=6), running)
    assert len(set(members)) == 3 and budget.allows(members)
    assert record.latency_ms == budget.latency_ms(members) <= record.budget_ms
    assert record.single.latency_ms <= record.budget_ms and record.single.candidates >= record.networks
    each = [planted.of(one) for one in members]
    scores = record.scores["test"]
    assert scores.error == error(np.mean(each, axis=0), LABELS)
    assert scores.mean_member_error == pytest.approx(np.mean([error(one, LABELS) for one in each]))
    single = record.single.scores["test"]
    assert record.error_difference == pytest.approx(scores.error - single.error)
    # no network that was asked and fits alone is a better single one
    validated = [one for one, images in planted.asked if images == "validation"]
    assert single.log_loss == min(
        -np.log(planted.of(one)[np.arange(IMAGES), LABELS]).mean() for one in validated if budget.allows([one])
    )


def test_of_one_list_the_exact_set_is_at_least_as_good_as_any_that_was_drawn(files: Path, space: Space) -> None:
    drawn, exact = (
        search(files, space, Planted(), EnsembleWishes(2, sampling, draws=8, seed=3))[1] for sampling in ("mc", "exact")
    )
    assert exact.scores["validation"].log_loss <= drawn.scores["validation"].log_loss
    assert exact.sets > drawn.sets and exact.networks >= drawn.networks


def test_the_same_seed_finds_the_same(files: Path, space: Space) -> None:
    wishes = EnsembleWishes(2, "svgd-rd", draws=3, delta=0.5, seed=1)
    first, second = (search(files, space, Planted(), wishes)[:2] for _ in range(2))
    assert first == second and first[1].delta == 0.5


def test_a_better_single_network_is_said_to_be_better(files: Path, space: Space) -> None:
    """The fastest network is perfect, and with any other member the answer is worse."""
    planted = Planted(perfect=space.smallest())
    _, record, _ = search(files, space, planted, EnsembleWishes(2, "exact", draws=4))
    assert record.single.scores["test"].error == 0.0 and record.single.architecture == str(space.smallest())
    assert record.scores["test"].error > 0.2
    assert search_ensembles.verdict(record).startswith("the single network is better: +")
    alike = record.model_copy(update={"error_difference": 0.01, "error_difference_se": 0.006})
    assert search_ensembles.verdict(alike).startswith("no better than the best single network")
    better = record.model_copy(update={"error_difference": -0.02, "error_difference_se": 0.006})
    assert search_ensembles.verdict(better).startswith("the ensemble is better")


def test_a_budget_that_the_fastest_exceed_is_named_before_anything_is_asked(files: Path, space: Space) -> None:
    planted, table = Planted(), LatencyTable.load(files / "table.json")
    fastest = table.predict(space.smallest())
    budget = JointBudget.of(space, table, 2.5 * fastest, "serial")
    asked = EnsembleSearch(Posterior.uniform(space.decisions), planted, budget, EnsembleWishes(3), space)
    with pytest.raises(GateError, match=r"3 networks .* even if each is the fastest"):
        asked.search()
    assert not planted.asked


def test_of_cells_random_sets_are_found(tmp_path: Path) -> None:
    (tmp_path / "cells.yaml").write_text(CELLS)
    cells = Space.load(tmp_path / "cells.yaml")
    costs = [np.full((len(own.choices), len(own.choices[0].options)), 0.1) for own in cells.decisions.groups]
    budget = JointBudget.of(cells, LatencyTable.from_arrays(cells, 0.1, costs), 1.0, "serial")
    wishes = EnsembleWishes(2, "random", draws=3)
    members, _ = EnsembleSearch(Posterior.uniform(cells.decisions), Planted(), budget, wishes, cells).search()
    assert len(set(members)) == 2 and budget.allows(members)


def test_what_no_search_can_do_is_refused() -> None:
    for members, sampling, why in [(6, "mc", "at most 5"), (1, "mc", "two members"), (4, "exact", "two or three")]:
        with pytest.raises(InputError, match=why):
            EnsembleWishes(members, sampling)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is for `--sampling svgd-rd`"):
        EnsembleWishes(2, "mc", delta=0.5)


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for name in ("mini.yaml", "quick.yaml", "table.json", "estimator.json", "w_star.safetensors", "w_star.json"):
        shutil.copy(files / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ensemble_result, "PosteriorSettings", partial(PosteriorSettings, epochs=1))
    monkeypatch.setattr(ensembles, "STEPS", 2)
    monkeypatch.setattr(ensemble_result, "STEPS", 2)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


def test_found_exported_checked_and_measured(deploynas) -> None:
    pytest.importorskip("model_signing", reason=BROUGHT)
    key_pair(Path("key"))
    code, out, err = deploynas(*RUN, "--draws", "1", "--out", "found.json")
    assert code == 0, err
    assert "ensemble of 2 (serial)" in out and "best single network" in out and "member 2" in out
    assert "disagree on" in err and "single" in err and "export found.json --supernet w_star.safetensors" in err
    document = SearchFile.load("found.json")
    found, members = document.ensemble, document.architectures()
    assert found is not None and found.posterior_steps == 4 and found.latency_ms <= 1.5
    code, out, err = deploynas("export", "found.json", "--supernet", "w_star.safetensors", "--device", "quick.yaml",
                               "--out", "out", "--patience", "0", "--sign", "key.pem")  # fmt: skip
    assert code == 0, err
    assert deploynas("report", "out/quick", "--verify", "key.pub")[0] == 0
    assert "model.onnx" in out and "the mean of its members' files" in err
    shipped = SearchFile.load("out/quick/ensemble.json").ensemble
    assert shipped is not None and shipped.measured_latency_ms is not None
    supernet = open_supernet("w_star.safetensors")
    predictions = NetworkPredictions(supernet)
    mean = np.mean([predictions.of(one, "test") for one in members], axis=0)
    assert found.scores["test"].error == error(mean, predictions.labels("test"))
    ((images, _), *_) = supernet.batches.evaluation(supernet.data.test, 50)
    session = open_session(Path("out/quick/model.onnx").read_bytes())
    assert softmax(session.run(None, {"input": images.numpy()})[0]) == pytest.approx(mean[:50], abs=1e-4)


def test_in_parallel_a_file_each_with_weights_of_ones_own(deploynas) -> None:
    """And the estimator's networks are candidates."""
    code, out, err = deploynas(
        "search", "--ensemble", "2", "--parallel", "--sampling", "random", "--draws", "1", "--json", "--out", "p.json",
        "--supernet", "w_star.safetensors", "--latency", "table.json:0.9", "--estimator", "estimator.json",
    )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    assert told["ensemble"]["running"] == "parallel" and told["estimator"]["path"] == "estimator.json"
    supernet, document = open_supernet("w_star.safetensors"), SearchFile.load("p.json")
    for number, network in enumerate(document.architectures(), start=1):
        save_network(supernet.cut_out(network), network, f"{number}.safetensors")
    export = ["export", "p.json", "--supernet", "w_star.safetensors", "--device", "quick.yaml", "--patience", "0"]
    code, out, err = deploynas(*export, "--member", "1.safetensors", "--member", "2.safetensors")
    assert code == 0 and "member-1.onnx" in out and "member-2.onnx" in out and "one at a time" in err
    assert "inherited" not in err
    code, _, err = deploynas(*export, "--max-latency-ms", "0.0001", "--out", "missed")
    assert code == 3 and "is not met" in err and not Path("missed/quick").exists()
    for option in (["--ort-package"], ["--license", "MIT"], ["--base-model", "a/b"]):
        code, _, err = deploynas(*export, *option)
        assert code == 2 and f"`{option[0]}` is for single networks" in err
    code, _, err = deploynas(*export, "--member", "1.safetensors")
    assert code == 2 and "2 members, 1 networks" in err
    code, _, err = deploynas(*export, "--member", "2.safetensors", "--member", "1.safetensors")
    assert code == 2 and "is not member 1" in err and "--pick 1" in err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([*RUN, "--parallel"], "is `--serial` or `--parallel`"),
        ([*RUN[:3], *RUN[4:]], "is `--serial` or `--parallel`"),
        ([*RUN[:2], "6", *RUN[3:]], "at most 5 members"),
        ([*RUN[:2], "4", *RUN[3:], "--sampling", "exact"], "two or three networks"),
        ([*RUN, "--delta", "0.5"], "is for `--sampling svgd-rd`"),
        ([*RUN, "--frontier"], "takes no `--frontier`"),
        ([*RUN, "--solver", "hnas"], "takes no `--solver`"),
        ([*RUN, "--max-params", "1e6"], "one latency budget"),
        ([*RUN[:-1], "table.json"], "has no budget"),
        ([*RUN[:4], *RUN[6:]], "`--supernet RUN`"),
        (
            ["search", "--estimator", "estimator.json", "--latency", "table.json:1", "--draws", "3"],
            "is for `--ensemble",
        ),
        (["export", "estimator.json", "--member", "w_star.safetensors"], "`--member` is for an ensemble"),
    ],
)
def test_what_does_not_go_together_is_refused(deploynas, arguments: list[str], why: str) -> None:
    code, _, err = deploynas(*arguments)
    assert code == 2 and why in err, err


def test_networks_that_do_not_fit_together_are_a_gate(deploynas) -> None:
    code, _, err = deploynas(*RUN[:-1], "table.json:0.6")
    assert code == 3 and "even if each is the fastest" in err
