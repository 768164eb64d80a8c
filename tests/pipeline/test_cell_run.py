"""From a supernet of cells to a bundle: what ships computes what was fine-tuned, and the report shows edges."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from click.testing import CliRunner

import deploynas as dn
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.cli import group
from deploynas.pipeline.export import ExportOptions
from deploynas.pipeline.exported import Wishes
from deploynas.pipeline.finetune import FineTuneOptions
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.training.data import load_data
from deploynas.training.recipe import Recipe

FOUND = "|nor_conv_3x3~0|+|none~0|avg_pool_3x3~1|+|skip_connect~0|none~1|nor_conv_1x1~2|"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Path:
    """Untrained weights, and an estimator to which one cell is worth most."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "quick.yaml").write_text((files / "quick.yaml").read_text())
    space = Space.load("fashion-cell")
    torch.manual_seed(0)
    about = {"data": load_data("fashion-mini", space).describe().model_dump(), "fingerprint": "made for tests"}
    for name in ("w_h", "w_star"):
        Supernet(space).save(folder / f"{name}.safetensors", about)
    (wanted,) = Architecture.parse(FOUND, space).choices
    worth = [[0.01 * (o == best) for o in range(5)] for best in wanted]
    BilinearEstimator.from_arrays(space, 0.5, [[0.0]], [worth]).save(folder / "estimator.json")
    dn.profile(dn.Device.load(folder / "quick.yaml"), space).save(folder / "table.json")
    return folder


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    files = ["--estimator", str(run / "estimator.json"), "--latency", f"{run / 'table.json'}:1000"]
    done = CliRunner().invoke(group, ["search", *files, "-o", str(run / "search.json")])
    assert done.exit_code == 0, done.output
    (best,) = SearchFile.load(run / "search.json").architectures()
    assert str(best) == FOUND
    changes = ["finetune.epochs=1", "finetune.batch=100", "finetune.warmup_epochs=0", "recalibration_images=100"]
    options = FineTuneOptions(Recipe.for_space("fashion", None, changes))
    network = dn.finetune(run, best, None, run / "network", options)
    export = ExportOptions(Wishes(runs=20, frontier_points=0), search=run / "search.json")
    return dn.export(network, dn.Device.load(run / "quick.yaml"), run / "bundle", options=export).folder


def test_the_file_computes_what_the_network_does(bundle: Path, run: Path) -> None:
    network = load_checkpoint(run / "network" / "network.safetensors")
    session = onnxruntime.InferenceSession(bundle / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["architecture"] == FOUND
    x = np.random.default_rng(0).standard_normal((3, 1, 28, 28)).astype(np.float32)
    with torch.no_grad():
        wanted = network.model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(session.run(None, {"input": x})[0], wanted, atol=1e-5, rtol=1e-4)


def test_the_report_shows_edges(bundle: Path) -> None:
    report = json.loads((bundle / "report.json").read_text())
    pieces = {block["name"]: block for block in report["blocks"]}
    # edge 0-3 is a skip; what is `none` is not there
    assert list(pieces) == ["stem", "edge0-1", "edge1-2", "edge0-3", "edge2-3", "stage2/reduction", "head"]
    assert pieces["edge0-1"]["text"] == "conv 3×3" and pieces["edge0-1"]["measured_ms"] > 0
    assert sum(block["share"] or 0 for block in report["blocks"]) == pytest.approx(1, abs=0.05)
    assert any("nor_conv_3x3 → nor_conv_1x1" in change["name"] for change in report["changes"])
    pages = {name: (bundle / name).read_text() for name in ("report.html", "report.md", "README.md")}
    assert '<svg class="cell"' in pages["report.html"] and "edge0-1" in pages["report.md"]
    assert "NAS-Bench-201's notation, node by node" in pages["README.md"] and FOUND.split("+")[1] in pages["README.md"]


def test_the_frontier_is_listed_cell_by_cell(run: Path) -> None:
    files = ["--estimator", str(run / "estimator.json"), "--latency", str(run / "table.json")]
    done = CliRunner().invoke(group, ["search", *files, "--frontier"])
    assert done.exit_code == 0, done.output
    assert "c3|- m3|s - c1" in done.output


def test_explain_compares_operations(run: Path) -> None:
    done = CliRunner().invoke(group, ["explain", str(run / "estimator.json"), "--latency", str(run / "table.json")])
    assert done.exit_code == 0, done.output
    assert "nor_conv_3x3 others → this" in done.output and "edge0-1" in done.output
    at = CliRunner().invoke(group, ["explain", str(run / "estimator.json"), "--at", FOUND])
    assert at.exit_code == 0, at.output
    assert "nor_conv_3x3 → skip_connect" in at.output
