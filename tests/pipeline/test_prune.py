"""`prune` by the command itself, with real files and the real runtime; only latencies of the table are made up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
import timm
import torch
from safetensors.torch import save_file

from deploynas.cli import main
from deploynas.device import Device
from deploynas.errors import GateError
from deploynas.latency import bench as bench_module
from deploynas.latency import file_timing
from deploynas.latency.table import LatencyTable, Measurement
from deploynas.pipeline import prune as prune_module
from deploynas.pipeline.prunable import open_prunable
from deploynas.pipeline.prune import PruneSettings, Pruning, require_held
from deploynas.pipeline.prune_transformer import TransformerPruning
from deploynas.pipeline.width_methods import METHODS
from deploynas.report.pruned import PrunedFile
from deploynas.space import Space
from deploynas.space.widths import chosen_widths, widths_of
from deploynas.supernet.checkpoint import load_checkpoint, save_network
from deploynas.supernet.extraction import extract
from deploynas.supernet.network import Supernet
from deploynas.training.checkpoint_record import CheckpointRecord, place_beside
from deploynas.training.data import load_data
from deploynas.training.recipe import Recipe

ROOT = Path(__file__).parent.parent.parent
FAST = ["--device", "quick.yaml", "--runs", "10", "--set", "finetune.epochs=1", "--set", "recalibration_images=60"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def network(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with its images beside it; its weights know nothing."""
    folder = tmp_path_factory.mktemp("network")
    script = ROOT / "examples" / "own-data" / "write_images.py"
    subprocess.run([sys.executable, str(script), str(folder / "small"), "--per-class", "6"], check=True)
    space = Space.load(files / "mini.yaml")
    data = load_data(f"folder:{folder / 'small'}", space)
    record = CheckpointRecord(role="network", data=data.describe(), data_place=place_beside(data.place, folder / "net"))
    model = extract(Supernet.load(files / "w_star.safetensors"), space.heaviest())
    save_network(model, space.heaviest(), folder / "net" / "network.safetensors", record.about())
    shutil.copy(files / "quick.yaml", folder)
    return folder


@pytest.fixture
def deploynas(network: Path, monkeypatch, capsys):
    """The command, timing little: no test here depends on how long anything takes."""
    monkeypatch.chdir(network)
    monkeypatch.setattr(file_timing, "PROCESSES", 2)
    monkeypatch.setattr(file_timing, "VISITS", 3)
    monkeypatch.setattr(bench_module, "_breakdown", lambda case, target, timing: ([], None))

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["deploynas", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return Outcome(int(stop.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def made_up(monkeypatch):
    """A table of so many milliseconds a channel, and whole networks that take what it says."""

    def use(ms: float) -> None:
        def table_of(space) -> LatencyTable:
            return LatencyTable.from_arrays(space, ms, [[[ms * width for width in own]] for own in widths_of(space)])

        def profiled(path, device, space, **options) -> LatencyTable:
            return table_of(space)

        def measured(device, space, architectures, **options) -> list[Measurement]:
            latencies = [table_of(space).predict(one) for one in architectures]
            return [
                Measurement(name="n", latency_ms=x, relative_error=0.0, stable=True, samples_ms=[[x]])
                for x in latencies
            ]

        monkeypatch.setattr(prune_module, "profile_to", profiled)
        monkeypatch.setattr(prune_module, "measure_networks", measured)

    return use


def test_a_pruned_network_is_a_file_that_other_commands_read(deploynas, made_up, network: Path) -> None:
    made_up(1.0)  # a second for what takes microseconds: held on any machine
    done = deploynas("prune", "net", "--ratio", "0.3", "-o", "pruned", "--json", *FAST)
    assert done.code == 0, done.err
    found, printed = PrunedFile.load(network / "pruned" / "pruned.json"), json.loads(done.out)
    assert printed["networks"][1]["widths"] == found.pruned.widths
    assert [one.method for one in found.networks] == ["original", "exact", "magnitude", "random"]
    assert found.original.widths == [16, 16, 16, 32]
    before = 1.0 + sum(found.original.widths)
    assert found.budget_ms == pytest.approx(0.7 * before)
    for one in [found.pruned, *found.controls]:
        assert one.predicted_ms == 1.0 + sum(one.widths) <= found.budget_ms
        assert all(width % 8 == 0 for width in one.widths) and one.macs < found.original.macs
        assert (network / "pruned" / one.file).exists()
    assert all(f"{control.method} pruning" in done.err for control in found.controls)
    saved = load_checkpoint(network / "pruned" / "network.safetensors")
    assert saved.architecture is not None and saved.about["recipe"]["finetune"]["distillation"]["temperature"] == 4
    again = deploynas("prune", "net", "--ratio", "0.3", "-o", "pruned", *FAST)
    assert again.code == 2 and "is there already" in again.err
    with pytest.raises(GateError, match="is missed"):  # which the command ends with, after it has written
        require_held(found.model_copy(update={"outcome": "missed"}))
    shipped = deploynas("export", "pruned", "--device", "quick.yaml", "--max-latency-ms", "1000", "--patience", "0")
    assert shipped.code == 0, shipped.err
    assert str(saved.architecture) in (network / "bundles" / "quick" / "architecture.json").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_widths_within_the_budget(made_up, network: Path, method: str, tmp_path: Path) -> None:
    made_up(1.0)
    recipe = Recipe.load("fashion", ["finetune.batch=20"])
    opened = open_prunable(str(network / "net"))
    pruning = Pruning(opened, Device.load(network / "quick.yaml"), tmp_path, PruneSettings(method, recipe=recipe))
    ranking = pruning.rank(pruning.ranker(pruning.table()), method, 50.0)
    found = pruning.widths(ranking, 50.0)
    assert 1.0 + sum(chosen_widths(found)) <= 50
    again = open_prunable(str(network / "net"))
    assert again.architecture == opened.architecture  # nothing was done to what was given


def test_what_cannot_be_pruned_says_why(deploynas, made_up, files: Path, network: Path) -> None:
    made_up(1.0)
    for arguments, told in (
        (["net"], "one of them"),
        (["net", "--ratio", "1.5"], "between 0 and 1"),
        (["net", "--max-latency-ms", "500"], "within the budget of 500 ms already"),
        ([str(files / "w_star.safetensors"), "--ratio", "0.3"], "holds a supernet"),
        (["timm:mobilenetv3_small_050", "--ratio", "0.3"], "give `--data`"),
        (["net", "--ratio", "0.3", "--input-size", "64"], "knows its own"),
    ):
        done = deploynas("prune", *arguments, "-o", "refused", *FAST)
        assert done.code == 2 and told in done.err, (arguments, done.err)
    done = deploynas("prune", "net", "--max-latency-ms", "20", "-o", "refused", *FAST)
    assert done.code == 3 and "20" in done.err


def test_a_transformer_is_pruned_by_its_heads_and_hidden_units(deploynas, network: Path, monkeypatch) -> None:
    torch.manual_seed(0)
    options = {"img_size": 32, "in_chans": 1, "num_classes": 10}
    save_file(timm.create_model("test_vit", **options).state_dict(), network / "vit.safetensors")
    timings = iter([100.0, 60.0])  # of the original, and of the first widths that are tried

    def made_up_ms(self, model) -> float:
        return next(timings)

    monkeypatch.setattr(TransformerPruning, "measured_ms", made_up_ms)
    called = ["timm:test_vit:vit.safetensors", "--data", "folder:small", "--input-size", "32"]
    done = deploynas("prune", *called, "--ratio", "0.3", "-o", "vit", *FAST, "--set", "finetune.batch=20")
    assert done.code == 0, done.err
    found = PrunedFile.load(network / "vit" / "pruned.json")
    assert found.original.widths == [32, 192] * 6
    assert [one.method for one in found.networks] == ["original", "gates", "magnitude", "random"]
    for one in found.networks[1:]:
        assert one.macs <= 0.7 * found.original.macs and all(width % 8 == 0 for width in one.widths)
        session = onnxruntime.InferenceSession(network / "vit" / one.file, providers=["CPUExecutionProvider"])
        assert session.run(None, {"input": np.zeros((3, 1, 32, 32), np.float32)})[0].shape == (3, 10)
    refused = deploynas("prune", *called, "--ratio", "0.3", "--method", "exact", "-o", "vit2", *FAST)
    assert refused.code == 2 and "gates, magnitude, random" in refused.err
