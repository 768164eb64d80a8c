"""One bundle, packaged for everybody, and every package opened by those whose format it is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from google.protobuf import text_format
from huggingface_hub import ModelCard
from keys import BROUGHT, key_pair
from runtime_packages import OpenPackage, Runtime

from deploynas.cli import main
from deploynas.export.bundle import SIGNATURE, check_manifest
from deploynas.files import sha256_of
from deploynas.report.document import ReportFile

pytest.importorskip("model_signing", reason=BROUGHT)

FAST = ["--set", "finetune.epochs=1", "--set", "finetune.batch=100", "--set", "recalibration_images=100"]
SAID = ["--license", "mpl-2.0", "--base-model", "somebody/supernet_1.0"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def deploynas(monkeypatch, capsys):
    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def made(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bundle with everything, signed; without the supernet, so that nothing is compared."""
    folder = tmp_path_factory.mktemp("packages")
    for path in files.iterdir():
        shutil.copy(path, folder)
    key_pair(folder / "key")
    table = ["--estimator", "estimator.json", "--latency", "table.json:1.2", "--out", "found.json"]
    packages = ["--int8", "force", "--triton", "--ort-package", *SAID, "--sign", "key.pem"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (
            ["search", *table],
            ["finetune", "found.json", "--supernet", "w_star.safetensors", *FAST],
            ["export", "found", "--device", "quick.yaml", "--max-latency-ms", "1000", *packages],
        ):
            if command[0] == "export":
                for name in ("w_h.safetensors", "w_star.safetensors", "estimator.json"):
                    (folder / name).unlink()
            patch.setattr(sys, "argv", ["deploynas", *command])
            with pytest.raises(SystemExit) as stop:
                main()
            assert not stop.value.code
    return folder


@pytest.fixture(scope="module")
def bundle(made: Path) -> Path:
    return made / "bundles" / "quick"


@pytest.fixture(scope="module")
def report(bundle: Path) -> ReportFile:
    return ReportFile.load(bundle)


def test_the_hub_reads_the_figures_in_the_card(bundle: Path, report: ReportFile) -> None:
    """By its own client, without leaving anything out that it could not read."""
    loaded = ModelCard.load(bundle / "README.md").data
    assert (loaded.library_name, loaded.pipeline_tag) == ("onnx", "image-classification")
    assert (loaded.license, loaded.base_model) == ("mpl-2.0", "somebody/supernet_1.0")
    # results are not said to be of the hub's own parts, which are other images
    assert {result.dataset_type for result in loaded.eval_results} == {"fashion-mini"}
    assert loaded.datasets == ["zalando-datasets/fashion_mnist"] and loaded.metrics == ["accuracy"]
    assert loaded.model_name == report.title
    found = {(result.dataset_split, result.metric_name): result.metric_value for result in loaded.eval_results}
    for file in report.files:
        assert file.timing
        assert found["validation", f"top-1, {file.precision}"] == pytest.approx(file.accuracy, abs=1e-6)
        latencies = [v for (_, name), v in found.items() if f"ms, {file.precision}, batch 1, 1 thread(s)" in name]
        expected = [file.timing.undisturbed.latency_ms, file.timing.clock.p50_ms]
        assert latencies == pytest.approx(expected, abs=1e-6)
    assert found["test", "top-1, fp32"] == pytest.approx(report.test_accuracy, abs=1e-6)
    assert len(found) == 3 * len(report.files) + 1


def test_the_bill_of_materials_follows_its_schema(bundle: Path, report: ReportFile) -> None:
    text = (bundle / "model.cdx.json").read_text()
    schema = pytest.importorskip("cyclonedx.schema", reason=BROUGHT).SchemaVersion.V1_6
    validation = pytest.importorskip("cyclonedx.validation.json", reason=BROUGHT)
    assert validation.JsonStrictValidator(schema).validate_str(text) is None
    document = json.loads(text)
    model = document["metadata"]["component"]
    assert model["hashes"][0]["content"] == sha256_of(bundle / report.shipped.path)
    assert model["licenses"] == [{"expression": "MPL-2.0"}]
    assert {one["name"]: one["hashes"][0]["content"] for one in model["components"]} == {
        file.path: sha256_of(bundle / file.path) for file in report.files
    }
    ancestors = {
        one["name"]: one.get("hashes", [{"content": None}])[0]["content"] for one in model["pedigree"]["ancestors"]
    }
    for role in ("network", "supernet"):
        file = report.lineage[role]
        assert file and ancestors[file.public().path] == file.sha256
    assert "somebody/supernet_1.0" in ancestors
    figures = {
        (one["type"], one.get("slice")): one for one in model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    }
    for file in report.files:
        assert file.timing
        one = figures["latency in ms, undisturbed", f"{file.precision}, batch 1, 1 thread(s)"]
        assert float(one["value"]) == file.timing.undisturbed.latency_ms
        bounds = tuple(float(one["confidenceInterval"][side]) for side in ("lowerBound", "upperBound"))
        assert bounds == file.timing.undisturbed.interval_ms
        assert float(figures["accuracy, top-1", f"validation, {file.precision}"]["value"]) == file.accuracy
    (data,) = (one for one in document["components"] if one["bom-ref"] == "data")
    labels = {p["name"]: p["value"] for p in data["data"][0]["contents"]["properties"]}
    assert [labels[f"deploynas:class:{i}"] for i in range(10)] == report.data.classes


def test_the_runtime_opens_the_package_with_the_file_to_deploy_first(bundle: Path, report: ReportFile) -> None:
    package = OpenPackage(Runtime(), bundle / "ort-package")
    others = [file.precision for file in report.files if file is not report.shipped]
    assert package.variants("classifier") == [f"quick.{one}" for one in (report.gated, *others)]
    with package.session("classifier") as (variant, _):
        assert variant == f"quick.{report.gated}"
    package.close()
    for file in report.files:
        copied = bundle / "ort-package" / f"quick.{file.precision}" / "model.onnx"
        assert sha256_of(copied) == sha256_of(bundle / file.path)


def model_config() -> ModuleType:
    """Triton's own messages, of its client's package; the file alone, since the client around it wants gRPC."""
    found = importlib.util.find_spec("tritonclient")
    if not found or not found.origin:
        pytest.skip(f"no tritonclient: {BROUGHT}")
    path = Path(found.origin).parent / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tritons_configuration_is_one_of_its_messages(bundle: Path) -> None:
    messages = model_config()
    for name in ("mini", "mini_int8"):
        folder = bundle / "triton" / name
        found = text_format.Parse((folder / "config.pbtxt").read_text(), messages.ModelConfig())
        assert found.name == name and found.platform == "onnxruntime_onnx" and found.max_batch_size == 64
        assert [(one.name, list(one.dims)) for one in found.input] == [("input", [1, 28, 28])]
        assert found.input[0].data_type == messages.TYPE_FP32 and found.output[0].label_filename == "labels.txt"
        assert found.parameters["intra_op_thread_count"].string_value == "1"
        assert len((folder / "labels.txt").read_text().splitlines()) == found.output[0].dims[0] == 10


def test_its_own_tool_confirms_the_signature(made: Path, bundle: Path) -> None:
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(bundle)]
    options = ["--signature", str(bundle / SIGNATURE), "--public_key", str(made / "key.pub")]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_signed_bundle_is_verified_and_not_broken_behind_anybodys_back(
    deploynas, made: Path, bundle: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(bundle, copy)
    listed = {file.path for file in check_manifest(copy).files}
    assert SIGNATURE not in listed and "ort-package/manifest.json" in listed
    held = deploynas("report", str(copy), "--verify", str(made / "key.pub"))
    assert held.code == 0 and f"{len(listed) + 1} files" in held.err and "model.int8.onnx" in held.err

    # the same pages again: nothing is written, and the signature holds
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    again = deploynas("report", str(copy))
    assert again.code == 0 and {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before

    # other pages, as another version would write them
    (copy / "report.md").write_text("older words")
    refused = deploynas("report", str(copy))
    assert refused.code == 2 and "would break its signature" in refused.err and "--out" in refused.err
    assert (copy / "report.md").read_text() == "older words"
    changed = deploynas("report", str(copy), "--verify", str(made / "key.pub"))
    assert changed.code == 3 and "report.md" in changed.err and "does not hold" in changed.err
    assert deploynas("report", str(copy), "--out", str(tmp_path / "pages")).code == 0
    assert (tmp_path / "pages" / "report.html").exists() and not (tmp_path / "pages" / SIGNATURE).exists()


def test_a_file_that_was_slipped_in_breaks_the_signature(deploynas, made: Path, bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "copy")
    (tmp_path / "copy" / "triton" / "extra.so").write_text("loaded by somebody")
    done = deploynas("report", str(tmp_path / "copy"), "--verify", str(made / "key.pub"))
    assert done.code == 3 and "extra.so" in done.err


@pytest.mark.parametrize("name", ["model.onnx", "manifest.json", "ort-package/quick.int8/model.onnx", "predict.py"])
def test_whatever_is_changed_the_signature_does_not_hold(
    deploynas, made: Path, bundle: Path, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    done = deploynas("report", str(copy), "--verify", str(made / "key.pub"))
    assert done.code == 3 and name in done.err


def test_a_bundle_is_signed_again_only_as_its_manifest_says(
    deploynas, made: Path, bundle: Path, tmp_path: Path
) -> None:
    """Another key, a licence's text added; a changed model is nobody's to vouch for."""
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    key_pair(tmp_path / "other")
    (copy / "LICENSE").write_text("Mozilla Public License")
    done = deploynas("report", str(copy), "--sign", str(tmp_path / "other.pem"))
    assert done.code == 0 and "signed" in done.err
    assert "LICENSE" in {file.path for file in check_manifest(copy).files}
    assert deploynas("report", str(copy), "--verify", str(tmp_path / "other.pub")).code == 0
    theirs = deploynas("report", str(copy), "--verify", str(made / "key.pub"))
    assert theirs.code == 3 and "Key mismatch" in theirs.err
    (copy / "model.onnx").write_bytes(b"another model")
    refused = deploynas("report", str(copy), "--sign", str(tmp_path / "other.pem"))
    assert refused.code == 2 and "model.onnx changed" in refused.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--sign", "nowhere.pem"], "no such key file"),
        (["--license", "my own"], "no SPDX licence"),
        (["--base-model", "https://hub/x"], "no name of a model"),
    ],
)
def test_a_mistake_is_found_before_anything_is_made(
    deploynas, made: Path, monkeypatch, options: list[str], why: str
) -> None:
    monkeypatch.chdir(made)
    done = deploynas("export", "found", "--device", "quick.yaml", "--out", "begun", *options)
    assert done.code == 2 and why in done.err and not (made / "begun").exists()


def test_nothing_in_the_packages_says_where_they_were_made(made: Path, bundle: Path) -> None:
    for path in bundle.rglob("*"):
        if path.is_file():
            assert str(made).encode() not in path.read_bytes(), path
