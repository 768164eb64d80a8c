"""bf16 is the file of fp32, and what its provider is told: judged where that is computed, and shipped if it pays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from deploynas.device import Device
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.bundle import check_manifest
from deploynas.export.network_file import Bf16File, Fp32File
from deploynas.export.verification import Judged, Verification, judged
from deploynas.latency.bench import Benched, BenchResult, Case
from deploynas.latency.instruction_sets import instruction_sets
from deploynas.latency.ratio import Ratio
from deploynas.pipeline import exported, on_provider
from deploynas.pipeline.on_provider import bf16_file
from deploynas.pipeline.verdict import NetworkFiles, Rule, timed_files
from deploynas.report.document import ReportFile

SERVICE = Path(__file__).parents[2] / "examples" / "serve"
FASTMATH = "mlas.enable_gemm_fastmath_arm64_bfloat16"
HAS_OPENVINO = "OpenVINOExecutionProvider" in onnxruntime.get_available_providers()
HAS_BF16 = bool({"avx512_bf16", "amx_bf16"} & set(instruction_sets()))
no_bf16 = pytest.mark.skipif("bf16" in instruction_sets(), reason="the CPU provider has bf16 on this processor")
openvino = pytest.mark.skipif(
    not HAS_OPENVINO or not HAS_BF16, reason="needs onnxruntime-openvino in place of onnxruntime, and bf16"
)


@pytest.fixture
def alone(fine_tuned, tmp_path: Path):
    """Nothing to compare with, which would take most of the time."""
    for name in ("w_h.safetensors", "w_star.safetensors", "estimator.json"):
        (tmp_path / name).unlink()
    return fine_tuned


def written(folder: Path, name: str, **said: str) -> str:
    lines = (folder / "quick.yaml").read_text().replace("quick", name)
    for key, value in said.items():
        lines = "\n".join(line for line in lines.splitlines() if not line.startswith(f"{key}:")) + f"\n{key}: {value}\n"
    (folder / f"{name}.yaml").write_text(lines)
    return f"{name}.yaml"


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to the nearest number with 8 significant bits."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 256) / 256, exponent).astype(np.float32)


def as_if_rounded(lost: bool) -> Callable[..., Judged]:
    def judged_on(device: Device, content: bytes, images) -> Judged:
        assert device.precision == "bf16"
        found = judged(content, images)
        if lost:  # every image that was right is wrong
            return Judged(bf16(found.logits), np.where(found.correct, found.labels + 1, found.labels))
        return Judged(bf16(found.logits), found.predicted * found.correct + found.labels * ~found.correct)

    return judged_on


def as_if_faster(faster: float) -> Callable[..., Benched]:
    real = exported.bench_together

    def bench_together(cases: list[Case], device: Device, runs: int) -> Benched:
        verdict = "faster" if faster > 1 else "slower"
        ratio = Ratio(base="fp32", other="bf16", faster=faster, interval=(0.9 * faster, 1.1 * faster), verdict=verdict)
        return Benched(real(cases, device, runs=10).results, (ratio,))

    return bench_together


def promised(bundle: Path) -> float:
    """What the service says of the file that it opens, of whose two rows it has to take the right one."""
    code = "import sys; from bundle import *; print(open_bundle(Path(sys.argv[1])).promise.undisturbed_ms)"
    said = subprocess.check_output([sys.executable, "-c", code, bundle], cwd=SERVICE, text=True)
    return float(said)


# -- a provider that has no bf16 here ----------------------------------------------------------------------------------


@no_bf16
def test_a_processor_without_bf16_is_a_reason_not_to_ship_and_an_error_for_what_must(alone, tmp_path: Path) -> None:
    done = alone("export", "found", "--device", "quick.yaml", "--bf16")
    assert done.code == 0, done.err
    report = ReportFile.load(tmp_path / "bundles" / "quick")
    assert [file.precision for file in report.files] == ["fp32"] and report.gated == "fp32"
    (verdict,) = report.verdicts
    assert not verdict.ships and "`cpu` computes in bf16 where Linux lists `bf16`" in verdict.words
    assert verdict.words in done.err
    forced = alone("export", "found", "--device", "quick.yaml", "--bf16", "force")
    assert forced.code == 2 and "cannot run bf16" in forced.err
    own = alone("export", "found", "--device", written(tmp_path, "brain", precision="bf16"))
    assert own.code == 2 and "where Linux lists `bf16`" in own.err


@no_bf16
def test_a_provider_that_computes_fp32_all_the_same_is_found_out(alone, tmp_path: Path, monkeypatch) -> None:
    """As if nothing were known of instructions: the option is taken without a word, and changes nothing."""
    monkeypatch.setattr(exported, "lacking_instructions", lambda *_: None)
    done = alone("export", "found", "--device", "quick.yaml", "--bf16")
    assert done.code == 0, done.err
    (verdict,) = ReportFile.load(tmp_path / "bundles" / "quick").verdicts
    assert not verdict.ships and "is told to compute in bf16 and computes in fp32 here" in verdict.words
    forced = alone("export", "found", "--device", "quick.yaml", "--bf16", "force")
    assert forced.code == 3 and "computes in fp32 here" in forced.err


# -- one file, and a session that is told ------------------------------------------------------------------------------


@pytest.mark.parametrize(("faster", "lost"), [(2.0, False), (0.5, False), (2.0, True)])
def test_bf16_ships_only_where_it_is_faster_and_accurate(
    faster: float, lost: bool, alone, tmp_path: Path, monkeypatch
) -> None:
    """As if the clock, and the images, had said so."""
    monkeypatch.setattr(exported, "lacking_instructions", lambda *_: None)
    monkeypatch.setattr(on_provider, "judged_on", as_if_rounded(lost))
    monkeypatch.setattr(exported, "bench_together", as_if_faster(faster))
    done = alone("export", "found", "--device", "quick.yaml", "--bf16", "--max-accuracy-drop", "0", "--triton")
    assert done.code == 0, done.err
    bundle, pays = tmp_path / "bundles" / "quick", faster > 1 and not lost
    report, manifest = ReportFile.load(bundle), check_manifest(bundle)
    (verdict,) = report.verdicts
    assert verdict.ships == pays and verdict.faster == faster and verdict.words in done.err
    assert [file.precision for file in report.files] == (["fp32", "bf16"] if pays else ["fp32"])
    assert report.gated == ("bf16" if pays else "fp32")
    # one file, whatever ships: what its session is told makes the difference, and the bench of each says so
    assert manifest.model == report.shipped.path == "model.onnx"
    assert {path.name for path in bundle.glob("*.onnx")} == {"model.onnx"}
    session = manifest.about.session
    assert session is not None and session.session_options.get(FASTMATH) == ("1" if pays else None)
    assert (bundle / "bench.bf16.json").exists() == pays
    measured = BenchResult.model_validate_json((bundle / "bench.fp32.json").read_text())
    assert measured.device.precision == "fp32"
    if pays:
        told = BenchResult.model_validate_json((bundle / "bench.bf16.json").read_text())
        assert told.device.precision == "bf16" and told.model_sha256 == measured.model_sha256
        assert told.device_hash != measured.device_hash
        assert told.provenance["provider_defaults"] == {FASTMATH: True}
        assert "model.onnx (bf16)" in (bundle / "report.md").read_text()
        assert "fp32 and bf16" in (bundle / "report.html").read_text()
        assert report.shipped.timing and promised(bundle) == report.shipped.timing.undisturbed.latency_ms
    assert ("loses" in verdict.words) == lost and ("2.00 times slower" in verdict.words) == (faster < 1)
    # a server has no word for bf16: it gets the file of fp32 alone
    assert [path.name for path in (bundle / "triton").iterdir()] == ["mini"]
    image = np.random.default_rng(0).integers(256, size=(28, 28), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "image.png")
    said = subprocess.run(
        [sys.executable, bundle / "predict.py", tmp_path / "image.png", "--json"], capture_output=True, text=True
    )
    assert said.returncode == 0 and len(json.loads(said.stdout)[0]["classes"]) == 3


def fp32(content: bytes = b"") -> Fp32File:
    return Fp32File(content, Verification((1,), 0.1, 0.0, 4, 1.0, 1.0, np.ones(4, bool), 0))


@pytest.mark.parametrize(("asked", "ships"), [("measured", False), ("force", True), ("device", True)])
def test_what_another_machine_computes_is_not_judged_here_and_the_verdict_says_so(asked: str, ships: bool) -> None:
    precision = "bf16" if asked == "device" else "fp32"
    device = Device.model_validate({"name": "far", "provider": "openvino", "host": "board", "precision": precision})
    file = bf16_file(fp32(b"the file"), device.opened_for("bf16"), lambda: ())
    assert file == Bf16File(b"the file", None, "its provider is on another machine, and no other computes in bf16")
    ratio = Ratio(base="fp32", other="bf16", faster=2.0, interval=(1.9, 2.1), verdict="faster")
    files = NetworkFiles(fp32(), bf16=file)
    made = timed_files(files, {}, {"bf16": ratio}, device, Rule({"bf16": asked}, 0.01))  # type: ignore[dict-item]
    (verdict,) = made.verdicts
    assert verdict.ships == ships and verdict.doubtful == ships and verdict.accuracy is None
    assert "its accuracy is not known: its provider is on another machine" in verdict.words
    known = NetworkFiles(fp32(), bf16=replace(file, lost=AccuracyDrop(1.0, 0.0, 0.0, 4)))
    assert timed_files(known, {}, {"bf16": ratio}, device, Rule({"bf16": "measured"}, 0.01)).verdicts[0].ships


# -- for real ----------------------------------------------------------------------------------------------------------


@openvino
def test_openvino_computes_in_bf16_what_ships_as_bf16(alone, tmp_path: Path) -> None:
    beside = written(tmp_path, "beside", provider="openvino")
    done = alone("export", "found", "--device", beside, "--bf16", "force", "--max-accuracy-drop", "1")
    assert done.code == 0, done.err
    own = alone("export", "found", "--device", written(tmp_path, "own", provider="openvino", precision="bf16"))
    assert own.code == 0, own.err
    for name in ("beside", "own"):
        bundle = tmp_path / "bundles" / name
        report, manifest = ReportFile.load(bundle), check_manifest(bundle)
        assert [file.precision for file in report.files] == ["fp32", "bf16"] and report.gated == "bf16"
        session = manifest.about.session
        assert session is not None and '"bf16"' in session.provider_options["load_config"]
        for precision, hint in (("fp32", '"f32"'), ("bf16", '"bf16"')):
            bench = BenchResult.model_validate_json((bundle / f"bench.{precision}.json").read_text())
            assert hint in bench.provenance["provider_defaults"]["load_config"]


@openvino
def test_fp16_is_judged_on_the_provider_that_computes_it(alone, tmp_path: Path, monkeypatch) -> None:
    """What the CPU provider, which has no fp16, would make of the file says nothing of OpenVINO."""
    opened: list[str] = []
    real = on_provider.open_session
    monkeypatch.setattr(
        on_provider, "open_session", lambda path, device: opened.append(device.provider_name) or real(path, device)
    )
    done = alone("export", "found", "--device", written(tmp_path, "half", provider="openvino", precision="fp16"))
    assert done.code == 0, done.err
    assert opened == ["OpenVINOExecutionProvider"]
    assert ReportFile.load(tmp_path / "bundles" / "half").shipped.accuracy is not None
