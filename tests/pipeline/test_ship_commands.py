"""From a search result to a bundle by the commands themselves, on a tiny space, with the real runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from shipping import FAST

from deploynas.costs import Costs
from deploynas.device import Device
from deploynas.export import integer_file, verification
from deploynas.export.bundle import check_manifest
from deploynas.files import sha256_of
from deploynas.latency.bench import Benched, Case
from deploynas.latency.ratio import Ratio
from deploynas.pipeline import exported
from deploynas.pipeline.run_folder import RunFolder
from deploynas.report.document import ReportFile
from deploynas.report.numbers import ms
from deploynas.search.result_file import SearchFile
from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.training.checkpoint_record import CheckpointRecord


def test_from_a_search_result_to_a_bundle(fine_tuned, tmp_path: Path) -> None:
    arguments = ["--device", "quick.yaml", "--max-latency-ms", "1000", "--int8", "force", "--triton"]
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
    check_both_latencies(report, bundle, done.out)
    again = fine_tuned("report", str(bundle))
    assert again.code == 0 and check_manifest(bundle)


def test_a_device_in_fp16_is_shipped_an_fp16_file(fine_tuned, tmp_path: Path) -> None:
    (tmp_path / "half.yaml").write_text(
        (tmp_path / "quick.yaml").read_text().replace("quick", "half") + "\nprecision: fp16\n"
    )
    for name in ("w_h.safetensors", "w_star.safetensors", "estimator.json"):
        (tmp_path / name).unlink()  # without them nothing is compared, which would take most of the time
    done = fine_tuned("export", "found", "--device", "half.yaml", "--max-latency-ms", "1000", "--triton")
    assert done.code == 0, done.err
    bundle = tmp_path / "bundles" / "half"
    report = ReportFile.load(bundle)
    assert [file.precision for file in report.files] == ["fp32", "fp16"] and report.gated == "fp16"
    assert report.shipped.path == "model.fp16.onnx" and report.shipped.size_bytes < report.files[0].size_bytes
    listed = {file.path for file in check_manifest(bundle).files}
    assert listed >= {"model.fp16.onnx", "bench.fp16.json", "triton/mini_fp16/1/model.onnx"}
    served = (bundle / "triton" / "mini_fp16" / "config.pbtxt").read_text()
    assert "TYPE_FP32" in served and "FP16" not in served  # the model's border is float32
    assert "fp32 and fp16" in (bundle / "report.html").read_text()
    assert "model.fp16.onnx (fp16)" in (bundle / "report.md").read_text()
    assert "predict.py image.png --model model.fp16.onnx" in (bundle / "README.md").read_text()
    image = np.random.default_rng(0).integers(256, size=(28, 28), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "image.png")
    predict = [sys.executable, str(bundle / "predict.py"), str(tmp_path / "image.png"), "--json", "--top", "10"]
    odds = [
        {guess["label"]: guess["p"] for guess in json.loads(subprocess.check_output([*predict, *model]))[0]["classes"]}
        for model in ([], ["--model", str(bundle / "model.fp16.onnx")])
    ]
    assert odds[0] == pytest.approx(odds[1], abs=0.01)


def check_both_latencies(report: ReportFile, bundle: Path, console: str) -> None:
    """What was measured is what the console and Triton's configurations say, of each file its own."""
    for file, name in zip(report.files, ("mini", "mini_int8"), strict=True):
        assert file.timing
        both = [ms(file.timing.undisturbed.latency_ms), ms(file.timing.clock.p50_ms)]
        comments = (bundle / "triton" / name / "config.pbtxt").read_text().split("name:")[0].splitlines()
        assert all(line.startswith("# ") for line in comments) and "quick" in comments[0]
        assert f"undisturbed: {both[0]}" in comments[1] and f"on this machine as it was: {both[1]}" in comments[2]
        assert all(latency in console for latency in both)


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


@pytest.mark.parametrize(("faster", "lost"), [(2.0, False), (0.5, False), (2.0, True)])
def test_8_bits_ship_only_where_they_are_faster_and_accurate(
    faster: float, lost: bool, fine_tuned, tmp_path: Path, monkeypatch
) -> None:
    """As if the clock, and the images, had said so."""
    for name in ("w_h.safetensors", "w_star.safetensors", "estimator.json"):
        (tmp_path / name).unlink()  # without them nothing is compared, which would take most of the time
    real, judged = exported.bench_together, verification.judged

    def bench_together(cases: list[Case], device: Device, runs: int) -> Benched:
        ratio = Ratio(
            base="fp32",
            other="int8",
            faster=faster,
            interval=(0.9 * faster, 1.1 * faster),
            verdict="faster" if faster > 1 else "slower",
        )
        return Benched(real(cases, device, runs=10).results, (ratio,))

    monkeypatch.setattr(exported, "bench_together", bench_together)

    def seen(*what: Any, **how: Any) -> verification.Judged:
        found = judged(*what, **how)
        return replace(found, logits=found.logits * 0, labels=found.labels * 0 + int(lost))

    monkeypatch.setattr(integer_file, "judged", seen)
    done = fine_tuned("export", "found", "--device", "quick.yaml", "--int8", "--max-accuracy-drop", "0")
    assert done.code == 0, done.err
    bundle = tmp_path / "bundles" / "quick"
    report, manifest = ReportFile.load(bundle), check_manifest(bundle)
    verdict = next(one for one in report.verdicts if one.precision == "int8")
    pays = faster > 1 and not lost
    assert verdict.ships == pays and verdict.faster == faster and verdict.words in done.err
    assert [file.precision for file in report.files] == (["fp32", "int8"] if pays else ["fp32"])
    assert report.gated == ("int8" if pays else "fp32")
    assert manifest.model == report.shipped.path == ("model.int8.onnx" if pays else "model.onnx")
    assert (bundle / "model.int8.onnx").exists() == (bundle / "bench.int8.json").exists() == pays
    assert ("2.00 times faster" in verdict.words) == pays and ("2.00 times slower" in verdict.words) == (faster < 1)
    assert ("more than the 0 that are allowed" in verdict.words) == lost
    for page in ("report.md", "report.html", "README.md"):
        assert verdict.words in (bundle / page).read_text()
    # a prediction is of the file that tables are about, whichever ships
    assert report.predicted_file.precision == "fp32"
    assert report.predicted_of_shipped == (None if pays else report.predicted_ms)


def test_8_bits_part_by_part(fine_tuned, tmp_path: Path) -> None:
    """The frontier from fp32 to 8 bits is measured, and explained from the bundle alone."""
    for name in ("w_h.safetensors", "w_star.safetensors", "estimator.json"):
        (tmp_path / name).unlink()
    done = fine_tuned("export", "found", "--device", "quick.yaml", "--int8", "mixed", "--max-accuracy-drop", "1")
    assert done.code == 0, done.err
    bundle = tmp_path / "bundles" / "quick"
    report = ReportFile.load(bundle)
    record = report.assignments
    assert record is not None
    space = load_checkpoint(tmp_path / "found" / "network.safetensors").space
    every = [name for name, _ in space.parts(space.architecture(report.choices))]
    assert [part.name for part in record.parts] == every
    slowest, fastest = record.frontier[0], record.frontier[-1]
    assert slowest.predicted_drop <= fastest.predicted_drop and slowest.predicted_ms >= fastest.predicted_ms
    measured = [point for point in record.frontier if point.measured_ms is not None]
    assert slowest in measured and fastest in measured
    chosen = [point for point in record.frontier if point.chosen]
    assert len(chosen) == 1  # nothing is lost that is not allowed, so it is the fastest that was measured
    assert chosen[0].measured_ms == min(point.measured_ms for point in measured)
    assert {part.name for part in record.parts if part.in_8_bits} == set(chosen[0].in_8_bits)
    mixed = [verdict for verdict in report.verdicts if verdict.precision in ("mixed", "int8")]
    assert len(mixed) == 1 and mixed[0].words in done.err
    if mixed[0].ships and mixed[0].precision == "mixed":
        properties = {p.key: p.value for p in onnx.load(bundle / "model.mixed.onnx").metadata_props}
        assert set(json.loads(properties["in_float"])) == set(every) - set(chosen[0].in_8_bits)
    explained = fine_tuned("explain", "bundles/quick", "--int8")
    assert explained.code == 0 and all(name in explained.out for name in every)
    for page in ("report.md", "report.html"):
        assert "8 bits, part by part" in (bundle / page).read_text()
    refused = fine_tuned("explain", "bundles/quick", "--int8", "--at", "heaviest")
    assert refused.code == 2 and "`--int8` takes a bundle alone" in refused.err


def test_fine_tuning_is_not_done_twice_and_refuses_other_settings(fine_tuned) -> None:
    again = fine_tuned("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST, "--json")
    assert again.code == 0 and "already fine-tuned" in again.err
    assert 0 <= json.loads(again.out)["validation_accuracy"] <= 1
    other = fine_tuned("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST, "--seed", "1")
    assert other.code == 2 and "other settings" in other.err


RUN = ["w_h.epochs=1", "w_h.batch=100", "w_h.warmup_epochs=0", "w_star.epochs=1", "w_star.batch=100"]
RUN += ["w_star.warmup_epochs=0", "report_networks=2"]
TRAINING = [*FAST, *(part for change in RUN for part in ("--set", change))]
RUN_OPTIONS = ["--space", "mini.yaml", "--passes", "2", "--validate", "0", "--refine", "2", "--patience", "0"]


def test_the_whole_path_with_one_command_and_again_for_nothing(deploynas, tmp_path: Path) -> None:
    """The budgets are those of the device file, and the files lie where the single commands look for them."""
    options = [*RUN_OPTIONS, *TRAINING]
    space = Space.load(tmp_path / "mini.yaml")
    allowed = (Costs.of(space, space.smallest()).params + Costs.of(space, space.heaviest()).params) // 2
    budgets = f"budgets: {{latency_ms: 1000, params: {allowed}}}\n"
    (tmp_path / "quick.yaml").write_text((tmp_path / "quick.yaml").read_text() + budgets)
    first = deploynas("run", "--device", "quick.yaml", *options)
    assert first.code == 0, first.err
    run = RunFolder.of_space("mini")
    report = ReportFile.load(run.bundle("quick"))
    assert report.budget_ms == 1000 and report.params <= allowed
    found, refined = SearchFile.load(run.device("quick").search), run.device("quick").estimator
    assert found.estimator.sha256 == sha256_of(refined) != sha256_of(run.estimator)
    assert found.refinement and "refined with" in first.err and found.budget_ms == 1000
    stamp = (run.bundle("quick") / "manifest.json").read_bytes()
    second = deploynas("run", "--device", "quick.yaml", *options)
    assert second.code == 0 and second.err.count("made from the same inputs") == 5
    assert (run.bundle("quick") / "manifest.json").read_bytes() == stamp

    # an export that is done again alone still tells what the search had tried
    (run.bundle("quick") / "model.onnx").unlink()
    third = deploynas("run", "--device", "quick.yaml", *options)
    assert third.code == 0 and third.err.count("made from the same inputs") == 4
    again = ReportFile.load(run.bundle("quick"))
    assert len(again.rounds) == len(report.rounds) >= 2 and again.rounds[0] == report.rounds[0]

    # what the single commands find by default
    table = f"{run.device('quick').table}:1000"
    found = deploynas("search", "--estimator", str(run.estimator), "--latency", table, "-o", "found.json")
    assert found.code == 0 and "next: deploynas finetune found.json --supernet runs/mini" in found.err
    tuned = deploynas("finetune", "found.json", *FAST)
    assert tuned.code == 0, tuned.err
    trained = deploynas("train", "--space", "mini.yaml", *TRAINING)
    assert trained.code == 0 and "already trained" in trained.err
    other = deploynas("run", "--device", "quick.yaml", *options, "--passes", "3")
    assert other.code == 0 and "estimate: again, since what it reads has changed: settings" in other.err
    assert "search for quick: again, since what it reads has changed: estimator" in other.err

    # an accuracy instead of a budget: what is promised is a result of the search
    knee = deploynas("run", "--device", "quick.yaml", *options, "--passes", "3", "--within", "1", "--refine", "0")
    assert knee.code == 0 and "search: the fastest within 1 point of the best" in knee.err
    found = SearchFile.load(run.device("quick").search)
    assert found.estimator.sha256 == sha256_of(run.estimator) and not found.refinement
    assert ReportFile.load(run.bundle("quick")).budget_ms == found.budget_ms < 1000

    # trained weights are not thrown away for a changed recipe
    weights = sha256_of(run.w_star)
    retrained = deploynas("run", "--device", "quick.yaml", *options, "--set", "w_star.lr=0.01")
    assert retrained.code == 2 and "other settings" in retrained.err and sha256_of(run.w_star) == weights


def test_a_network_is_not_taken_for_that_of_other_weights(fine_tuned, tmp_path: Path) -> None:
    """After the supernet has changed: not reused, and a bundle of it states the weights it really inherited."""
    inherited = sha256_of(tmp_path / "w_star.safetensors")
    about = load_checkpoint(tmp_path / "w_star.safetensors").about
    torch.manual_seed(7)
    Supernet(Space.load(tmp_path / "mini.yaml")).save(tmp_path / "w_star.safetensors", about)
    assert sha256_of(tmp_path / "w_star.safetensors") != inherited
    again = fine_tuned("finetune", "found.json", "--supernet", "w_star.safetensors", *FAST)
    assert again.code == 2 and "other settings" in again.err
    done = fine_tuned("export", "found", "--device", "quick.yaml", "--max-latency-ms", "1000")
    assert done.code == 0, done.err
    stated = check_manifest(tmp_path / "bundles" / "quick").lineage["supernet"]
    assert stated is not None and stated.sha256 == inherited
    slow = fine_tuned("export", "found", "--device", "quick.yaml", "--max-latency-ms", "1e-6")
    assert slow.code == 3 and "changed since" in slow.err and "the supernet" in slow.err


def test_a_device_that_allows_less_is_a_gate(fine_tuned, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text((tmp_path / "quick.yaml").read_text() + "budgets: {params: 10}\n")
    done = fine_tuned("export", "found", "--device", "small.yaml", "--max-latency-ms", "1000")
    assert done.code == 3 and "params" in done.err and "allowed are 10" in done.err
    assert not (tmp_path / "bundles" / "quick").exists()


def test_any_network_of_a_frontier_can_be_picked(deploynas, tmp_path: Path) -> None:
    table = ["--estimator", "estimator.json", "--latency", "table.json"]
    assert deploynas("search", *table, "--frontier", "-o", "front.json").code == 0
    points = SearchFile.load(tmp_path / "front.json").frontier
    assert len(points) > 3
    done = deploynas("finetune", "front.json", "--pick", "3", "--supernet", ".", *FAST, "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["architecture"] == points[2].architecture and answer["network"].startswith("front-3")
    beyond = deploynas("finetune", "front.json", "--pick", str(len(points) + 1), "--supernet", ".", *FAST)
    assert beyond.code == 2 and f"has {len(points)} networks" in beyond.err


def test_the_best_few_are_measured_in_the_supernet_and_timed_on_a_device(deploynas, tmp_path: Path) -> None:
    asked = ["search", "--estimator", "estimator.json", "--latency", "table.json:1.2", "--top", "3"]
    done = deploynas(*asked, "--measure", ".", "--device", "quick.yaml", "-o", "measured.json")
    assert done.code == 0, done.err
    assert "accuracy, measured" in done.out and "latency, measured" in done.out
    networks = SearchFile.load(tmp_path / "measured.json").networks
    accuracies = [network.measured_accuracy for network in networks]
    assert len(networks) == 3 and accuracies == sorted(accuracies, reverse=True)
    assert all(network.measured_latency_ms > 0 for network in networks)
    unknown = deploynas(*asked, "--measure", ".")  # a table that was not profiled
    assert unknown.code == 2 and "nothing says on which device" in unknown.err
    for wrong in (["--measure", ".", "--rerank", "."], ["--device", "quick.yaml"]):
        assert deploynas(*asked, *wrong).code == 2


def test_w_h_is_not_taken_for_the_supernet(deploynas) -> None:
    for command in (["estimate", "--passes", "1"], ["finetune", "--architecture", "x"]):
        refused = deploynas(*command, "--supernet", "w_h.safetensors")
        assert refused.code == 2 and "is w_h" in refused.err and "w_star.safetensors" in refused.err


def test_nothing_that_leaves_the_machine_says_where_the_data_lie(deploynas, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = tmp_path / "secret-place" / "images"
    for label in range(10):
        (images / f"class{label}").mkdir(parents=True)
        for i in range(5):
            pixels = rng.integers(256, size=(28, 28), dtype=np.uint8)
            Image.fromarray(pixels).save(images / f"class{label}" / f"{i}.png")
    space = Space.load(tmp_path / "mini.yaml")
    for name in ("w_h", "w_star"):
        Supernet(space).save(tmp_path / f"{name}.safetensors", {})
    data, small = f"folder:{images}", ["--set", "finetune.batch=20"]
    smallest = ["--architecture", str(space.smallest()), "--supernet", str(tmp_path), "-o", "tuned"]
    tuned = deploynas("finetune", *smallest, "--data", data, *FAST, *small)
    assert tuned.code == 0, tuned.err
    record = CheckpointRecord.read(tmp_path / "tuned" / "network.safetensors")
    assert record.data.name == "folder" and record.data_place == "../secret-place/images"
    done = deploynas("export", "tuned", "--device", "quick.yaml", "--max-latency-ms", "1000", "--triton")
    assert done.code == 0, done.err
    for path in (tmp_path / "bundles").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"secret-place" not in content and str(tmp_path).encode() not in content, path


@pytest.mark.parametrize(
    "wrong",
    [
        ["--solver", "magic"],
        ["--refine", "1"],
        ["--within", "1", "--min-accuracy", "0.5"],
        ["--device", "cpu-1t:3", "--within", "1"],
        ["--max-params", "-1"],
        ["--target-se", "2"],
        ["--device", "cpu-1t:soon"],
        ["--device", "cpu-1t:0"],
        ["--device", "cpu-1t:-2"],
        ["--max-latency-ms", "0"],
        ["--max-latency-ms", "-1"],
        ["--device", "cpu-1t", "--device", "cpu-1t:3"],
    ],
)
def test_run_finds_a_mistake_before_it_begins(deploynas, tmp_path: Path, wrong: list[str]) -> None:
    outcome = deploynas("run", "--out", "begun", *wrong)
    assert outcome.code == 2 and "error: " in outcome.err
    assert not (tmp_path / "begun").exists()
