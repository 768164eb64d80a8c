"""From a search result to a bundle by the commands themselves, on a tiny space, with the real runtime."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from deploynas.cli import main
from deploynas.export.bundle import check_manifest
from deploynas.report.document import ReportFile

FAST = ["--set", "finetune.epochs=1", "--set", "finetune.batch=500", "--set", "recalibration_images=500"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def deploynas(files: Path, tmp_path: Path, monkeypatch, capsys):
    for path in files.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def fine_tuned(deploynas):
    found = deploynas("search", "--estimator", "estimator.json", "--latency", "table.json:1.2", "--out", "found.json")
    assert found.code == 0, found.err
    done = deploynas("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST)
    assert done.code == 0, done.err
    return deploynas


def test_from_a_search_result_to_a_bundle(fine_tuned, tmp_path: Path) -> None:
    arguments = ["--device", "quick.yaml", "--max-latency-ms", "1000", "--int8", "--max-accuracy-drop", "1", "--triton"]
    done = fine_tuned("export", "found", *arguments)
    assert done.code == 0, done.err
    bundle = tmp_path / "bundles" / "quick"
    manifest = check_manifest(bundle)
    listed = {file.path for file in manifest.files}
    assert listed >= {
        *("model.onnx", "model.int8.onnx", "architecture.json", "README.md", "report.html", "report.json", "report.md"),
        *("predict.py", "triton/mini/config.pbtxt", "triton/mini/1/model.onnx", "triton/mini_int8/1/model.onnx"),
    }
    for name in ("estimator", "search", "supernet", "network"):
        assert manifest.lineage[name] is not None, name
    report = ReportFile.load(bundle)
    assert [file.precision for file in report.files] == ["fp32", "int8"]
    assert report.verification.onnx_accuracy == report.verification.torch_accuracy
    assert {block.name for block in report.blocks} >= {"stem", "stage1/block1", "head"}
    assert sum(block.share or 0 for block in report.blocks) == pytest.approx(1, abs=0.05)
    assert "tolerance" in done.err and (tmp_path / "bundles" / "index.html").exists()
    again = fine_tuned("report", str(bundle))
    assert again.code == 0 and check_manifest(bundle)


def test_a_further_device_gets_a_bundle_of_its_own_and_a_miss_does_not_take_the_others_along(
    fine_tuned, tmp_path: Path
) -> None:
    for name in ("second", "third"):
        (tmp_path / f"{name}.yaml").write_text((tmp_path / "quick.yaml").read_text().replace("quick", name))
    arguments = ["--device", "quick.yaml", "--max-latency-ms", "1000", "--also-on", "second.yaml:1000"]
    done = fine_tuned("export", "found", *arguments, "--also-on", "third.yaml:1e-6", "--json")
    assert done.code == 3 and "third: the budget" in done.err and "were written" in done.err
    assert [report["device"]["name"] for report in json.loads(done.out)] == ["quick", "second"]
    index = (tmp_path / "bundles" / "index.html").read_text()
    assert "quick/report.html" in index and "second/report.html" in index and "third" not in index


def test_a_budget_that_cannot_be_met_exits_with_3_and_leaves_nothing(fine_tuned, tmp_path: Path) -> None:
    done = fine_tuned("export", "found", "--device", "quick.yaml", "--max-latency-ms", "1e-6")
    assert done.code == 3 and "not met: the fastest of 1 network took" in done.err
    assert not (tmp_path / "bundles" / "quick").exists()
    assert "Traceback" not in done.err


def test_a_refused_8_bit_file_leaves_nothing(fine_tuned, tmp_path: Path, monkeypatch) -> None:
    from deploynas.export import network_file

    monkeypatch.setattr(network_file, "onnx_accuracy", lambda content, images: -1.0)
    done = fine_tuned("export", "found", "--device", "quick.yaml", "--max-latency-ms", "1000", "--int8")
    assert done.code == 3 and "in 8 bits the network loses" in done.err
    assert not list((tmp_path / "bundles").iterdir())


def test_fine_tuning_is_not_done_twice_and_refuses_other_settings(fine_tuned) -> None:
    again = fine_tuned("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST, "--json")
    assert again.code == 0 and "already fine-tuned" in again.err
    assert 0 <= json.loads(again.out)["validation_accuracy"] <= 1
    other = fine_tuned("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST, "--seed", "1")
    assert other.code == 2 and "other settings" in other.err


def test_the_whole_path_with_one_command_and_again_for_nothing(deploynas, tmp_path: Path) -> None:
    tiny = ["w_h.epochs=1", "w_h.batch=500", "w_h.warmup_epochs=0", "w_star.epochs=1", "w_star.batch=500"]
    tiny += ["w_star.warmup_epochs=0", "report_networks=2"]
    options = ["--space", "mini.yaml", "--device", "quick.yaml:1000", "--passes", "2", "--validate", "0", *FAST]
    options += [part for change in tiny for part in ("--set", change)]
    first = deploynas("run", *options)
    assert first.code == 0, first.err
    assert "report.html" in first.err
    stamp = (tmp_path / "runs" / "mini" / "bundles" / "quick" / "manifest.json").read_bytes()
    second = deploynas("run", *options)
    assert second.code == 0, second.err
    assert "made from the same inputs" in second.err
    assert (tmp_path / "runs" / "mini" / "bundles" / "quick" / "manifest.json").read_bytes() == stamp


@pytest.mark.parametrize(
    "wrong", [["--solver", "magic"], ["--max-params", "-1"], ["--target-se", "2"], ["--device", "cpu-1t:soon"]]
)
def test_run_finds_a_mistake_before_it_begins(deploynas, tmp_path: Path, wrong: list[str]) -> None:
    outcome = deploynas("run", "--out", "begun", *wrong)
    assert outcome.code == 2 and "error: " in outcome.err
    assert not (tmp_path / "begun").exists()
