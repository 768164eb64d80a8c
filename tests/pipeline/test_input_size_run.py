"""From a supernet whose input size is open to a bundle: what ships takes images of the size that was found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from tiny_spaces import SIZED

import deploynas as dn
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.cli import group
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.export import ExportOptions
from deploynas.pipeline.exported import Wishes
from deploynas.pipeline.finetune import FineTuneOptions
from deploynas.pipeline.supernet import open_supernet
from deploynas.search.result_file import SearchFile
from deploynas.space import Space
from deploynas.supernet.network import Supernet
from deploynas.training.data import load_data
from deploynas.training.evaluation import for_each_size
from deploynas.training.recipe import Recipe

SMALL = 1  # index of the size that is worth most here: 20 pixels


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Path:
    """Untrained weights, and an estimator that prefers the size in the middle."""
    folder = tmp_path_factory.mktemp("sized")
    (folder / "sized.yaml").write_text(SIZED)
    (folder / "quick.yaml").write_text((files / "quick.yaml").read_text())
    space, rng = Space.load(folder / "sized.yaml"), np.random.default_rng(0)
    torch.manual_seed(0)
    about = {"data": load_data("fashion-mini", space).describe().model_dump(), "fingerprint": "made for tests"}
    for name in ("w_h", "w_star"):
        Supernet(space).save(folder / f"{name}.safetensors", about)
    shapes = [(stage.max_depth, len(stage.configs)) for stage in space.stages]
    worth = [*(rng.uniform(0, 0.01, shape).tolist() for shape in shapes), [[0.0, 0.2, 0.1]]]
    depth = [*([0.0, 0.01] for _ in shapes), [0.0]]
    BilinearEstimator.from_arrays(space, 0.5, depth, worth).save(folder / "estimator.json")
    dn.profile(dn.Device.load(folder / "quick.yaml"), space).save(folder / "table.json")
    return folder


@pytest.fixture(scope="module")
def bundle(run: Path) -> Path:
    files = ["--estimator", str(run / "estimator.json"), "--latency", f"{run / 'table.json'}:1000"]
    done = CliRunner().invoke(group, ["search", *files, "-o", str(run / "search.json")])
    assert done.exit_code == 0, done.output
    (best,) = SearchFile.load(run / "search.json").architectures()
    assert best.size_index == SMALL
    changes = ["finetune.epochs=1", "finetune.batch=100", "finetune.warmup_epochs=0", "recalibration_images=100"]
    options = FineTuneOptions(Recipe.for_space("fashion", None, changes))
    network = dn.finetune(run, best, None, run / "network", options)
    wishes = Wishes(runs=20, frontier_points=0, triton=True)
    export = ExportOptions(wishes, search=run / "search.json")
    return dn.export(network, dn.Device.load(run / "quick.yaml"), run / "bundle", options=export).folder


def test_the_file_takes_images_of_the_found_size(bundle: Path) -> None:
    session = onnxruntime.InferenceSession(bundle / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape[1:] == [1, 20, 20]
    said = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    assert (said["height"], said["width"]) == (20, 20)
    assert session.get_modelmeta().custom_metadata_map["architecture"].endswith(" @20")
    assert "dims: [ 1, 20, 20 ]" in (bundle / "triton" / "sized" / "config.pbtxt").read_text()


def test_the_report_says_the_size_and_predicts_at_it(bundle: Path, run: Path) -> None:
    report = json.loads((bundle / "report.json").read_text())
    table = LatencyTable.load(run / "table.json")
    network = table.space.architecture(report["choices"])
    assert report["predicted_ms"] == table.predict(network) == table.by_size[SMALL].predict(network.at_its_size)
    assert report["blocks"][0]["height"] == 20
    assert "images of 20×20" in (bundle / "report.html").read_text()
    assert "| images | 20×20 |" in (bundle / "report.md").read_text()
    assert any(change["name"].startswith("input, size 20 → 28") for change in report["changes"])


def test_predict_shrinks_a_larger_image_as_validation_did(bundle: Path, tmp_path: Path) -> None:
    """Probabilities of `predict.py` on files of 28 pixels are those of the network on the validation images."""
    data = load_data("fashion-mini", Space.load("fashion"))
    pixels = data.validation.images.pixels
    assert pixels is not None
    for i in range(3):
        Image.fromarray(pixels[data.validation.rows[i], 0].numpy()).save(tmp_path / f"{i}.png")
    images = [str(tmp_path / f"{i}.png") for i in range(3)]
    done = subprocess.run(
        [sys.executable, str(bundle / "predict.py"), *images, "--json", "--top", "10"], capture_output=True, check=True
    )
    from deploynas.supernet.checkpoint import load_checkpoint
    from deploynas.training.batches import Batches
    from deploynas.training.recipe import Augmentation

    checkpoint = load_checkpoint(bundle.parent / "network" / "network.safetensors")
    assert checkpoint.architecture is not None
    batches = Batches(data, checkpoint.space, Augmentation()).at_the_size_of(checkpoint.architecture)
    x = next(iter(batches.evaluation(data.validation, 3)))[0]
    with torch.no_grad():
        odds = checkpoint.model(x).softmax(1)
    for i, found in enumerate(json.loads(done.stdout)):
        for guess in found["classes"]:
            expected = float(odds[i, data.classes.index(guess["label"])])
            assert guess["p"] == pytest.approx(expected, abs=0.01)  # one grey level of rounding, here and there


def test_every_size_has_statistics_of_its_own_and_shares_the_weights(run: Path) -> None:
    supernet = open_supernet(run)
    small, middle, large = for_each_size(supernet.network, supernet.batches, 100)
    assert not torch.equal(small.bn1.running_mean, large.bn1.running_mean)
    assert small.conv_stem.weight is middle.conv_stem.weight is supernet.network.conv_stem.weight


def test_samples_know_the_size_of_every_image(run: Path) -> None:
    """Along one path for all images of a size, a pass of many paths says what a pass of that network says."""
    measure = open_supernet(run).one_shot
    rows = measure.space.decisions.draw(measure.images, np.random.default_rng(0))
    mixed = measure(rows)
    network = rows[:1].copy()
    same = (measure.space.decisions.canonical(rows) == measure.space.decisions.canonical(network)).all(axis=1)
    assert same.any()
    np.testing.assert_allclose(mixed.log_likelihood[same], measure(network).log_likelihood[same], rtol=1e-3, atol=1e-3)
