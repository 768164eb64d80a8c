"""estimate, explain and search --rerank as a user types them, on a small untrained supernet and real images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from tiny_spaces import SMALL

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.cli import group
from deploynas.errors import DeployNASError, InputError
from deploynas.latency.table import LatencyTable
from deploynas.space import Architecture, Space
from deploynas.supernet.network import Supernet
from deploynas.training.data import load_data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(SMALL)
    space = Space.load(folder / "small.yaml")
    torch.manual_seed(0)
    about = {"data": load_data("fashion-mini", space).describe().model_dump()}
    Supernet(space).save(folder / "w_star.safetensors", about)
    return folder


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(group, [str(a) for a in arguments], catch_exceptions=True)
    if isinstance(result.exception, DeployNASError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def estimated(run: Path) -> Path:
    call("estimate", "--supernet", run, "--passes", 3, "--validate", 12, "--out", run / "e.json")
    return run / "e.json"


def test_estimate_writes_a_validated_estimator_and_keeps_its_passes(run, estimated):
    data = json.loads(estimated.read_text())
    assert data["provenance"]["passes"] == 3 and data["provenance"]["supernet"]["data"] == "fashion-mini"
    assert data["validation"]["networks"] == 12 and data["validation"]["images"] == 4000
    (folder,) = (run / "samples").iterdir()
    assert len(list(folder.glob("image-*.npz"))) == 3 and len(list(folder.glob("unseen-*.npz"))) == 12


def test_the_same_command_measures_nothing_again(run, estimated, monkeypatch):
    from deploynas.accuracy.oneshot import SupernetMeasure

    def refuse(self, paths):
        raise AssertionError("measured again")

    monkeypatch.setattr(SupernetMeasure, "__call__", refuse)
    call("estimate", "--supernet", run / "w_star.safetensors", "--passes", 3, "--validate", 12, "--out", run / "f.json")
    first, second = (json.loads(path.read_text()) for path in (estimated, run / "f.json"))
    assert first["indices"] == second["indices"]


def test_two_processes_estimate_what_one_does_to_the_last_bit(run, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    torchrun = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m"]
    for name, launch in {"one": [], "two": torchrun}.items():
        asked = ["estimate", "--supernet", run, "--passes", 3, "--validate", 10, "--samples", tmp_path / name]
        arguments = ["-m", *launch, "deploynas", *asked, "--out", tmp_path / f"{name}.json", "--json"]
        done = subprocess.run(
            [sys.executable, *map(str, arguments)], env=environment, check=True, capture_output=True, text=True
        )
        assert json.loads(done.stdout)["passes"] == 3  # said once
    files = [sorted(p for p in (tmp_path / name).rglob("*") if p.is_file()) for name in ("one", "two")]
    assert [p.name for p in files[0]] == [p.name for p in files[1]] and len(files[0]) == 14
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(*files, strict=True))
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    for found in (one, two):
        found["provenance"].pop("created")
    assert one == two


@pytest.mark.parametrize("method", ["bilinear", "coupled", "quadratic", "fourier", "mlp"])
def test_learned_methods_share_the_passes(run, method, tmp_path):
    out = tmp_path / "e.json"
    result = call("estimate", "--supernet", run, "--method", method, "--passes", 20, "--validate", 0, "--out", out,
                  "--json")  # fmt: skip
    assert json.loads(result.stdout)["method"] == method
    assert json.loads(out.read_text())["kind"] == {"coupled": "quadratic"}.get(method, method)


def test_rounds_of_a_sparse_estimator_decide_on_a_network(run, tmp_path):
    asked = ["estimate", "--supernet", run, "--method", "fourier", "--passes", 40, "--validate", 0, "--json"]
    out = tmp_path / "e.json"
    told = json.loads(call(*asked, "--rounds", 2, "--out", out).stdout)
    assert 1 <= len(told["rounds"]) <= 2 and sum(own["networks"] for own in told["rounds"]) == told["passes"] <= 40
    assert str(Architecture.parse(told["decided"], load_estimator(out).space)) == told["decided"]
    plain = json.loads(call(*asked, "--terms", 5, "--threshold", "none", "--out", out).stdout)
    assert plain["terms"] <= 5 and plain["below_threshold"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "quadratic", "--terms", 3], "`--terms` is for `--method fourier`"),
        (["--rounds", 2], "`--rounds` is for `--method fourier`"),
    ],
)
def test_options_of_the_sparse_form_are_refused_elsewhere(run, arguments, said):
    with pytest.raises(InputError, match=said):
        call("estimate", "--supernet", run, *arguments)


def test_a_path_an_image_scores_as_the_network_of_that_path(run):
    """A pass in which all images take one path, either way of running it."""
    from deploynas.pipeline.supernet import open_supernet

    measure = open_supernet(run).one_shot
    path = measure.space.decisions.draw(1, np.random.default_rng(0))
    one, many = measure(path), measure(np.repeat(path, measure.images, axis=0))
    assert np.abs(one.log_likelihood - many.log_likelihood).max() < 1e-3
    assert (one.right == many.right).mean() > 0.999


def test_other_images_than_the_supernet_knows_are_refused(run, tmp_path):
    for name in ("w_star.safetensors", "w_star.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    file = json.loads((tmp_path / "w_star.json").read_text())
    file["about"]["data"]["split_hash"] = "0" * 16
    (tmp_path / "w_star.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match="not split as when"):
        call("estimate", "--supernet", tmp_path, "--passes", 1, "--validate", 0)


def test_explain_shows_every_choice_with_its_cost(estimated, tmp_path):
    space = Space.load(estimated.parent / "small.yaml")
    block_ms = [np.full((s.max_depth, len(s.configs)), 0.25) for s in space.stages]
    LatencyTable.from_arrays(space, 0.1, block_ms).save(tmp_path / "t.json")
    result = call("explain", estimated, "--latency", tmp_path / "t.json", "--json", "--html", tmp_path / "e.html")
    document = json.loads(result.stdout)
    deeper = next(i for i in document["insights"] if i["aspect"] == "depth")
    assert deeper["cost_ms"] == 0.25 and deeper["gain_per_ms"] == pytest.approx(deeper["gain"] / 0.25)
    page = (tmp_path / "e.html").read_text()
    assert page.count("<svg") == 2 * (1 + 2 + 2)  # depth, expansion, se by stage and by block, each with latency
    assert "± " in call("explain", estimated).stdout


def test_explain_asks_estimators_without_contributions_about_networks_alone(run, tmp_path):
    call("estimate", "--supernet", run, "--method", "quadratic", "--passes", 12, "--validate", 0, "--out",
         tmp_path / "q.json")  # fmt: skip
    with pytest.raises(InputError, match="no contributions"):
        call("explain", tmp_path / "q.json")
    document = json.loads(call("explain", tmp_path / "q.json", "--at", "smallest", "--json").stdout)
    assert document["insights"] == [] and document["at"]["changes"]


def test_explain_says_what_changes_bring_to_a_network(estimated, tmp_path):
    space = Space.load(estimated.parent / "small.yaml")
    block_ms = [np.full((s.max_depth, len(s.configs)), 0.25) for s in space.stages]
    LatencyTable.from_arrays(space, 0.1, block_ms).save(tmp_path / "t.json")
    call("search", "--estimator", estimated, "--max-params", 1e6, "--top", 3, "--out", tmp_path / "found.json")
    second = json.loads((tmp_path / "found.json").read_text())["networks"][1]
    options = ("explain", estimated, "--latency", tmp_path / "t.json")
    for name in (f"{tmp_path / 'found.json'}:2", second["architecture"]):
        page = tmp_path / "e.html"
        document = json.loads(call(*options, "--at", name, "--json", "--html", page).stdout)
        network = document["at"]["network"]
        assert network["architecture"] == second["architecture"]
        depth = next(c for c in document["at"]["changes"] if c["what"].startswith("depth"))
        before, after = depth["what"].removeprefix("depth ").split(" → ")
        assert depth["latency_ms"] == pytest.approx(0.25 * (int(after) - int(before)))
        assert depth["accuracy_se"] > 0 and "Changes of one network" in page.read_text()
    shown = call(*options, "--at", "smallest").stdout
    assert "expected accuracy" in shown and "latency, ms" in shown
    with pytest.raises(InputError, match="no number 9"):
        call(*options, "--at", f"{tmp_path / 'found.json'}:9")


def test_explain_says_why_one_network_and_not_another(estimated, tmp_path):
    space = Space.load(estimated.parent / "small.yaml")
    estimator = load_estimator(estimated)
    document = json.loads(call("explain", estimated, "heaviest", "smallest", "--json").stdout)
    heaviest, smallest = (estimator.expect(n).accuracy for n in (space.heaviest(), space.smallest()))
    assert document["accuracy"] == pytest.approx(heaviest - smallest)
    assert sum(part["accuracy"] for part in document["parts"]) == pytest.approx(heaviest - smallest)
    assert document["network"]["accuracy"] == pytest.approx(heaviest) and document["latency_ms"] is None
    assert "together" in call("explain", estimated, "heaviest", "smallest").stdout
    with pytest.raises(InputError, match="two networks"):
        call("explain", estimated, "heaviest")


def test_an_indexed_estimator_is_written_searched_and_explained(run, estimated, tmp_path):
    out = tmp_path / "i.json"
    result = call("estimate", "--supernet", run, "--method", "indexed", "--passes", 3, "--validate", 12, "--out", out)
    assert "deploynas explain" in result.stderr
    file = json.loads(out.read_text())
    assert file["kind"] == "indexed" and file["provenance"]["form"] in ("additive", "one index", "two indices")
    call("search", "--estimator", out, "--max-params", 1e6, "--top", 2, "--out", tmp_path / "found.json")
    networks = json.loads((tmp_path / "found.json").read_text())["networks"]
    assert len(networks) == 2 and all(network["optimal"] for network in networks)
    document = json.loads(call("explain", out, "--json").stdout)
    assert len(document["insights"]) == len(file["comparisons"]) > 0
    assert "together" in call("explain", out, f"{tmp_path / 'found.json'}:1", f"{tmp_path / 'found.json'}:2").stdout


def test_search_reranks_by_measured_accuracy(run, estimated, tmp_path):
    options = ["--estimator", estimated, "--max-params", 1e6, "--top", 4, "--out", tmp_path / "found.json"]
    call("search", *options, "--rerank", run)
    networks = json.loads((tmp_path / "found.json").read_text())["networks"]
    measured = [network["measured_accuracy"] for network in networks]
    assert len(networks) == 4 and measured == sorted(measured, reverse=True)
    with pytest.raises(InputError, match="--top K"):
        call("search", "--estimator", estimated, "--max-params", 1e6, "--rerank", run)


def test_search_says_how_far_to_trust_the_estimator(estimated, tmp_path):
    """The figures are those of the estimator's file; without them it says that there are none."""
    file = json.loads(estimated.read_text())
    for tau, said in ((0.25, "Kendall tau 0.25"), (None, "not validated")):
        validation = {**file["validation"], "kendall_tau": tau, "kendall_tau_interval": None, "networks": 12}
        (tmp_path / "e.json").write_text(json.dumps({**file, "validation": validation}))
        result = call("search", "--estimator", tmp_path / "e.json", "--max-params", 1e6)
        assert said in result.stderr and ("12 unseen networks" in result.stderr) == (tau is not None)
