"""Training on in 8 bits: resumes bit for bit, leaves the network alone, and export ships what was trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from tiny_spaces import SIZED

from deploynas.cli import group
from deploynas.device import Device
from deploynas.errors import DeployNASError, InputError
from deploynas.export.calibration import Calibration
from deploynas.export.integer_file import Int8File
from deploynas.export.verification import ImageStream, judged
from deploynas.files import sha256_of
from deploynas.pipeline.export import ExportOptions, open_network
from deploynas.pipeline.exported import MODEL, Wishes, Written, write_network
from deploynas.pipeline.finetune import FineTuneOptions, finetune
from deploynas.pipeline.finetune_int8 import Int8Options, finetune_int8, int8_task
from deploynas.pipeline.images import stream
from deploynas.progress import OnProgress, silent
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.report.document import ReportFile
from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.supernet.quantized_network import QuantizedNetwork
from deploynas.supernet.trained_quantization import TrainedQuantization
from deploynas.training.batches import Batches
from deploynas.training.data import load_data
from deploynas.training.metrics import read
from deploynas.training.recipe import Augmentation, Recipe
from deploynas.training.state import OtherSettings

FAST = ("finetune.epochs=1", "finetune.batch=100", "recalibration_images=100")
MSE = Calibration()
COARSE = Quantization(weight_bits=7, per_channel=False)


def space_of(files: Path) -> Space:
    return Space.load(files / "mini.yaml")


@pytest.fixture(scope="module")
def fine_tuned(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fine-tuned network; tests copy it."""
    folder = tmp_path_factory.mktemp("fine-tuned")
    options = FineTuneOptions(Recipe.load("fashion", FAST))
    finetune(files / "w_star.safetensors", space_of(files).heaviest(), out=folder, options=options)
    return folder


@pytest.fixture
def network(fine_tuned: Path, tmp_path: Path) -> Path:
    shutil.copytree(fine_tuned, tmp_path / "found")
    return tmp_path / "found" / "network.safetensors"


def tuned(
    network: Path, *changes: str, quantization: Quantization = COARSE, force: bool = False, on: OnProgress = silent
) -> TrainedQuantization:
    finetune_int8(network, quantization, Int8Options(changes=changes, force=force), on)
    found = TrainedQuantization.beside(network)
    assert found is not None
    return found


def written(network: Path, device: Device, calibration: Calibration = MSE) -> Written:
    given, wishes = open_network(network, ExportOptions()), Wishes("force", calibration=calibration)
    return write_network(network, Batches(given.data, given.space, Augmentation()), device, network.parent, wishes)


def int8_of(made: Written) -> Int8File:
    assert made.files.int8 is not None
    return made.files.int8


def images_at_the_size_of(network: Path) -> ImageStream:
    """The validation images as the network's files see them."""
    given, architecture = open_network(network, ExportOptions()), load_checkpoint(network).architecture
    assert architecture is not None
    batches = Batches(given.data, given.space, Augmentation()).at_the_size_of(architecture)
    return stream(batches, given.data.validation)


def device_for(quantization: Quantization) -> Device:
    return Device(name="quick", provider="cpu", quantization=quantization)


def test_training_that_was_stopped_ends_with_the_same_bits(network: Path, tmp_path: Path, files: Path) -> None:
    before = {path.name: sha256_of(path) for path in network.parent.iterdir() if path.name != "metrics.jsonl"}
    tuned(network, "int8.epochs=2")
    parts = tmp_path / "parts" / network.name
    shutil.copytree(network.parent, parts.parent, ignore=shutil.ignore_patterns("*.int8.*"))

    def stop(fraction: float, what: str) -> None:
        if fraction >= 0.5:
            raise KeyboardInterrupt

    recipe = open_network(network, ExportOptions()).recipe.changed(["int8.epochs=2"])
    often = Int8Options(recipe.model_copy(update={"checkpoint_every_s": 0.0}))
    with pytest.raises(KeyboardInterrupt):
        finetune_int8(parts, COARSE, often, stop)
    assert TrainedQuantization.beside(parts) is None and (parts.parent / "state.json").exists()
    # the command does both: first it finds the network finished
    options = FineTuneOptions(Recipe.load("fashion", FAST))
    whole_again = finetune(files / "w_star.safetensors", space_of(files).heaviest(), None, parts.parent, options)
    assert whole_again.resumed and (parts.parent / "state.json").exists()
    assert not finetune_int8(parts, COARSE, often).resumed
    assert finetune_int8(parts, COARSE, often).resumed
    whole, again = TrainedQuantization.path(network), TrainedQuantization.path(parts)
    assert sha256_of(again) == sha256_of(whole)
    files = [json.loads(path.with_suffix(".json").read_text()) for path in (whole, again)]
    assert files[0]["ranges"] == files[1]["ranges"] and not (parts.parent / "state.json").exists()
    # the network itself is what it was
    assert all(sha256_of(network.parent / name) == found for name, found in before.items())


def test_the_loss_falls_and_ranges_learn_only_if_they_may(network: Path, tmp_path: Path) -> None:
    start = int8_task(open_network(network, ExportOptions()), COARSE, Int8Options()).start
    learned = tuned(network, "int8.epochs=3", "int8.lr=0.02")
    recorded = read(network.with_name("metrics.jsonl"))
    epochs = [record["train_loss"] for record in recorded if record["phase"] == "int8" and "epoch" in record]
    assert len(epochs) == 3 and epochs[-1] < epochs[0]
    held = tuned(network, "int8.ranges=held", force=True)
    assert held.ranges == start.ranges and learned.ranges != start.ranges
    assert learned.ranges.keys() == start.ranges.keys() and learned.weights.keys() == start.weights.keys()
    for low, high in learned.ranges.values():
        assert low <= 0 <= high


def test_without_learning_it_is_the_calibrated_file(network: Path) -> None:
    """What training starts from is what export writes, and what it leaves is what export takes."""
    calibrated = int8_of(written(network, device_for(COARSE)))
    trained = tuned(network, "int8.lr=1e-30", "finetune.weight_decay=0", "finetune.ema_decay=0")
    assert trained.about.calibrated_accuracy == trained.about.validation_accuracy
    file = int8_of(written(network, device_for(COARSE)))
    assert file.trained == trained.about and calibrated.trained is None and calibrated.not_trained is None
    models = [onnx.load_model_from_string(made.content) for made in (calibrated, file)]
    assert models[0].graph.node == models[1].graph.node
    for one, other in zip(*(model.graph.initializer for model in models), strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(one), onnx.numpy_helper.to_array(other))
    said = {entry.key: entry.value for entry in models[1].metadata_props}
    assert json.loads(said["trained_int8"])["validation_accuracy"] == trained.about.validation_accuracy
    assert "calibration" not in json.loads(said["provenance"])


def test_export_ships_what_was_trained(network: Path) -> None:
    trained = tuned(network, "int8.epochs=2")
    file = int8_of(written(network, device_for(COARSE)))
    assert file.trained == trained.about and file.calibration_images == 0
    graph = onnx.load_model_from_string(file.content).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for name, weight in trained.weights.items():
        if name.endswith("/weight"):
            step = np.abs(weight).max() / np.float32(63)
            np.testing.assert_array_equal(stored[name].ravel(), np.rint(weight / step).astype(np.int8).ravel())
    # torch saw the accuracy that the file has as it is written, an image that is a tie aside
    right = judged(file.content, images_at_the_size_of(network), as_written=True).correct
    assert trained.about.validation_accuracy == pytest.approx(right.mean(), abs=1.01 / len(right))


def test_a_network_with_an_input_size_of_its_own(tmp_path: Path) -> None:
    """Images come as large as the teacher wants them; torch and the file see them as small as the network does."""
    (tmp_path / "sized.yaml").write_text(SIZED)
    space = Space.load(tmp_path / "sized.yaml")
    about = {"data": load_data("fashion-mini", space).describe().model_dump()}
    for name in ("w_h", "w_star"):
        Supernet(space).save(tmp_path / f"{name}.safetensors", about)
    options = FineTuneOptions(Recipe.load("fashion", FAST))
    made = finetune(tmp_path / "w_star.safetensors", space.smallest(), out=tmp_path / "small", options=options)
    trained = tuned(made.path)
    file = int8_of(written(made.path, device_for(COARSE)))
    shape = onnx.load_model_from_string(file.content).graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_value for size in shape[1:]] == [1, 16, 16] and file.trained == trained.about
    # training resizes as fine-tuning does, in float, and files see 8-bit pixels: so both are given the file's images
    images = images_at_the_size_of(made.path)
    network = QuantizedNetwork(space.parts(space.smallest()), trained.weights, trained.ranges, COARSE)
    with torch.no_grad():
        found = np.concatenate([network(torch.from_numpy(x)).numpy() for x, _ in images()])
    meant = judged(file.content, images, as_written=True)
    assert np.mean(found.argmax(axis=1) == meant.predicted) > 0.99 and len(found) == 400


def test_what_was_trained_for_something_else_is_left_out_with_the_reason(network: Path) -> None:
    tuned(network)
    for quantization, why in (
        (FOR_CPUS, "trained for `per_channel: false`, `weight_bits: 7`"),
        (Quantization(per_channel=False), "trained for `weight_bits: 7`"),
    ):
        file = int8_of(written(network, device_for(quantization)))
        assert file.trained is None and file.not_trained is not None and why in file.not_trained
        assert file.calibration_images > 0
    signed = Quantization(weight_bits=7, per_channel=False, activations="int8", weights="uint8")
    assert int8_of(written(network, device_for(signed))).trained  # the same numbers
    # a scale for each tensor can be asked for on any device, and then it fits
    seven = device_for(Quantization(weight_bits=7))
    assert int8_of(written(network, seven, Calibration(per_channel=False))).trained
    about = json.loads(network.with_suffix(".json").read_text())
    path = TrainedQuantization.path(network).with_suffix(".json")
    path.write_text(path.read_text().replace(about["weights_sha256"], "0" * 64))
    file = int8_of(written(network, device_for(COARSE)))
    assert file.trained is None and "other weights than the network has now" in str(file.not_trained)
    TrainedQuantization.path(network).write_bytes(b"cut off")
    with pytest.raises(InputError, match="SHA-256 differs"):
        written(network, device_for(COARSE))


def test_other_settings_are_refused_and_force_starts_over(network: Path) -> None:
    tuned(network)
    for changed in (lambda: tuned(network, "int8.lr=0.001"), lambda: tuned(network, quantization=FOR_CPUS)):
        with pytest.raises(OtherSettings, match=r"network\.int8\.safetensors was trained with other settings"):
            changed()
    assert tuned(network, quantization=FOR_CPUS, force=True).quantization == FOR_CPUS


def test_a_network_whose_teacher_is_gone_says_who_else_could_teach(network: Path, monkeypatch) -> None:
    about = json.loads(network.with_suffix(".json").read_text())
    about["about"]["lineage"] = {}
    network.with_suffix(".json").write_text(json.dumps(about))
    with pytest.raises(DeployNASError, match="does not say where the supernet is") as raised:
        tuned(network)
    assert f"--teacher {network}" in str(raised.value.hint)
    finetune_int8(network, COARSE, Int8Options(teacher=str(network)))
    found = TrainedQuantization.beside(network)
    assert found and found.about.teacher and found.about.teacher.name == "network"


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch) -> Callable[..., Result]:
    for path in files.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(group, arguments)


def test_from_a_search_result_to_a_bundle_with_trained_8_bits(deploynas, tmp_path: Path) -> None:
    with (tmp_path / "quick.yaml").open("a") as device:  # the same on every processor
        device.write("quantization: {weight_bits: 8}\n")
    made = deploynas("search", "--estimator", "estimator.json", "--latency", "table.json:1.2", "--out", "found.json")
    assert made.exit_code == 0, made.output
    settings = [argument for change in FAST for argument in ("--set", change)]
    how = ("--supernet", "w_star.safetensors", *settings, "--int8", "quick.yaml", "--int8-epochs", "2", "--json")
    done = deploynas("finetune", "found.json", *how)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    trained = TrainedQuantization.beside(tmp_path / "found" / "network.safetensors")
    assert trained and trained.quantization == FOR_CPUS
    assert said["int8"]["validation_accuracy"] == trained.about.validation_accuracy
    assert said["int8"]["device"] == "quick"
    again = deploynas("finetune", "found", "--int8", "quick.yaml", "--int8-epochs", "2", "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["int8"] == said["int8"]
    for name in ("w_h.safetensors", "w_star.safetensors", "estimator.json"):
        (tmp_path / name).unlink()  # without them nothing is compared, which would take most of the time
    done = deploynas("export", "found", "--device", "quick.yaml", "--int8", "force")
    assert done.exit_code == 0, done.output
    assert "int8: weights and ranges as `finetune --int8` trained them" in done.stderr
    bundle = tmp_path / "bundles" / "quick"
    report = ReportFile.load(bundle)
    assert report.calibration and report.calibration.method == "trained" and report.calibration.images == 0
    assert "weights and ranges were trained in 8 bits" in (bundle / "report.html").read_text()
    assert (bundle / MODEL["int8"]).exists()
    done = deploynas("export", "found", "--device", "quick.yaml", "--int8", "force", "--per-tensor")
    assert "weights that were trained in 8 bits were left out: they were trained for `per_channel: true`" in done.stderr


def test_commands_that_make_no_sense_are_refused(deploynas, network: Path) -> None:
    for arguments, message in (
        ((str(network),), "can only be trained on in 8 bits: `--int8`"),
        ((str(network), "--int8", "quick.yaml", "--pick", "2"), "--pick: not with a network that is fine-tuned"),
        ((str(network), "--int8-epochs", "2"), "`--int8-epochs` needs `--int8`"),
        ((str(network), "--int8", "no-such-device"), "no device `no-such-device`"),
        (("w_star.safetensors", "--int8"), "supernet"),
    ):
        done = deploynas("finetune", *arguments)
        assert isinstance(done.exception, InputError) and message in done.exception.message, message
