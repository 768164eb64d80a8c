"""A user with no data: from a space to a bundle by the commands themselves, nothing trained, no accuracy anywhere."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
import yaml

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.cli import main
from deploynas.export.bundle import check_manifest
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.markdown import markdown
from deploynas.search.result_file import SearchFile
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.training.checkpoint_record import CheckpointRecord

RANK = ["estimate", "--method", "training-free", "--passes", "2", "--out", "ranking.json"]
PERCENT = re.compile(r"\d ?%")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for name in ("mini.yaml", "quick.yaml", "table.json", "w_star.safetensors", "w_star.json"):
        shutil.copy(files / name, tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def found(deploynas):
    done = deploynas(*RANK, "--space", "mini.yaml", "--data", "random")
    assert done.code == 0, done.err
    done = deploynas("search", "--estimator", "ranking.json", "--latency", "table.json:1.2", "--out", "found.json")
    assert done.code == 0, done.err
    assert "which only ranks" in done.out and "proven optimal" in done.out
    assert "says nothing about the accuracy" in done.err and not PERCENT.search(done.text)
    return deploynas


def test_a_network_for_the_device_without_any_data(found, tmp_path: Path) -> None:
    result = SearchFile.load("found.json")
    assert "synflow" in (result.ranked_by or "")
    assert all(network.accuracy is None and network.optimal for network in result.networks)
    done = found("export", "found.json", "--untrained", "--device", "quick.yaml", "--max-latency-ms", "1000")
    assert done.code == 0, done.err
    assert "untrained" in done.out and not PERCENT.search(done.out.replace("prediction off by", ""))
    bundle = tmp_path / "bundles" / "quick"
    manifest = check_manifest(bundle)
    assert manifest.lineage["search"] is not None and manifest.lineage["supernet"] is None
    properties = {p.key: p.value for p in onnx.load(bundle / "model.onnx").metadata_props}
    assert properties["untrained"] == "true"
    assert json.loads(properties["provenance"])["validation_accuracy"] is None
    report = ReportFile.load(bundle)
    assert report.untrained and report.outcome is not None
    assert [file.accuracy for file in report.files] == [None]
    assert (report.verification.onnx_accuracy, report.verification.torch_accuracy) == (None, None)
    assert (report.predicted_accuracy, report.test_accuracy, report.gain, report.changes) == (None, None, None, [])
    assert "untrained" in report.warnings[0]
    card = (bundle / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert "untrained" in header["tags"] and not {"metrics", "model-index", "datasets"} & set(header)
    assert "classifies nothing" in card and "fine-tuned" not in card
    for page in (html(report), markdown(report)):
        assert "untrained" in page and "fine-tuned" not in page
    assert markdown(report).count("accuracy, validation |  | untrained") == 1


def test_the_untrained_file_is_the_network_that_was_found_and_says_so(found) -> None:
    done = found("export", "found.json", "--untrained", "--device", "quick.yaml")
    assert done.code == 0, done.err
    checkpoint = load_checkpoint("found.untrained/network.safetensors")
    assert checkpoint.architecture == SearchFile.load("found.json").network(1)
    record = CheckpointRecord.of(checkpoint)
    assert record.untrained and record.validation_accuracy is None and record.data and record.data.name == "random"
    again = found("export", "found.untrained", "--device", "quick.yaml", "--out", "again")
    assert again.code == 0 and ReportFile.load(Path("again/quick")).untrained


def test_over_the_budget_smaller_networks_are_tried_without_a_supernet(found) -> None:
    """The table is made up, so no network keeps so small a budget; but others were looked for."""
    done = found("export", "found.json", "--untrained", "--device", "quick.yaml", "--max-latency-ms", "1e-6")
    assert done.code == 3
    assert "the supernet" not in done.err and not Path("bundles/quick").exists()


def test_a_ranking_is_held_against_the_accuracies_of_a_supernet(deploynas) -> None:
    done = deploynas(*RANK, "--score", "synflow", "--supernet", "w_star.safetensors", "--validate", "4")
    assert done.code == 0, done.err
    assert "Kendall tau" in done.out and "mean error" not in done.out
    estimator = load_estimator("ranking.json")
    assert estimator.validation is not None and estimator.validation.networks == 4
    assert estimator.validation.mean_error is None and estimator.validation.curve is None


def test_explain_speaks_in_the_unit_of_the_score(found) -> None:
    done = found("explain", "ranking.json", "--latency", "table.json")
    assert done.code == 0, done.err
    assert "only ranks" in done.text and "points" not in done.out and not PERCENT.search(done.text)
    document = json.loads(found("explain", "ranking.json", "--json").out)
    assert document["ranked_by"] and document["findings"] == []
    network = SearchFile.load("found.json").networks[0].architecture
    for more in (["--at", network], ["--html", "page.html"], [network, network]):
        refused = found("explain", "ranking.json", *more)
        assert refused.code == 2 and "only ranks" in refused.err


def test_the_frontier_of_a_ranking_has_scores(found) -> None:
    done = found("search", "--estimator", "ranking.json", "--latency", "table.json", "--frontier", "--json")
    assert done.code == 0, done.err
    points = json.loads(done.out)["frontier"]
    assert len(points) > 1 and all(point["accuracy"] is None for point in points)
    assert [point["score"] for point in points] == sorted(point["score"] for point in points)


@pytest.mark.parametrize("goal", [[], ["--within", "1"], ["--min-accuracy", "0.5"]])
def test_a_budget_does_not_follow_from_an_accuracy_that_nobody_knows(found, goal: list[str]) -> None:
    done = found("search", "--estimator", "ranking.json", "--latency", "table.json", *goal)
    assert done.code == 2 and "only ranks" in done.err and "hint:" in done.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([*RANK], "needs a space"),
        ([*RANK, "--space", "mini.yaml", "--sampling", "pooled"], "`--sampling`"),
        ([*RANK, "--space", "mini.yaml", "--from", "results.csv"], "goes without"),
        ([*RANK, "--space", "mini.yaml", "--score", "log-likelihood"], "no training-free score"),
        (["estimate", "--supernet", "w_star.safetensors", "--score", "trace"], "no score `trace`"),
        (["export", "found.json", "--device", "quick.yaml"], "no weights yet"),
        (["export", "w_star.safetensors", "--untrained"], "takes a search result"),
    ],
)
def test_what_does_not_go_together_is_refused(found, arguments: list[str], why: str) -> None:
    done = found(*arguments)
    assert done.code == 2 and why in done.err
