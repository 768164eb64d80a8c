"""The long commands, small: what each is told, what it needs of those before it, what it makes, and what must be the
same in the end however often it was stopped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fault_attempts import Attempt
from fault_checks import same_bytes, same_document, same_graph, same_records

ROOT = Path(__file__).parent.parent
# as small as a network may be that `prune` still finds something to take from
SPACE = """
name: mini
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 1, activation: relu, depths: [1, 2], ratios: [4, 6], kernels: [3, 5], se: [0]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 2], ratios: [4, 6], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""
WORKERS, VISITS = 2, 12
DEVICE = f"""
name: quick
provider: cpu
effort: {{workers: {WORKERS}, visits: {VISITS}, part_visits: {VISITS}, warmup_runs: 0, runs: 5, min_visit_ms: 0.0,
         correction_networks: 4, validation_networks: 2, max_relative_error: 1.0, time_limit_s: 60}}
"""
IMAGES = 20  # of each class
INPUTS = ("mini.yaml", "quick.yaml", "board.yaml", "small")
TRAINING = [
    *("w_h.epochs=2", "w_h.batch=20", "w_star.epochs=2", "w_star.batch=20"),
    *("recalibration_images=100", "report_networks=4", "checkpoint_every_s=0"),
]
TUNING = ["finetune.epochs=3", "finetune.batch=20", "recalibration_images=100", "checkpoint_every_s=0"]
PASSES = ["--passes", "8", "--validate", "10"]
Compare = Callable[[Path, Path], list[str]]


def _set(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@dataclass(frozen=True)
class Command:
    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...]  # of what was made before it
    makes: tuple[str, ...]
    differences: Compare  # between a folder where nothing happened and another one
    begins: str  # this file is there as soon as it works: its lock
    also_done: tuple[str, ...] = ()  # errors of a command whose work is done

    def begun(self, folder: Path) -> bool:
        return (folder / self.begins).exists()

    def inputs_into(self, folder: Path, quiet: Path) -> None:
        """An empty folder with copies of what it needs."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in (*INPUTS, *self.needs):
            source = quiet / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            elif source.exists():
                shutil.copy(source, folder / name)


def _train(quiet: Path, other: Path, run: str = "run") -> list[str]:
    one, two = quiet / run / "supernet", other / run / "supernet"
    pairs = [
        problem
        for name in ("w_h", "w_star")
        for problem in same_bytes(one / f"{name}.safetensors", two / f"{name}.safetensors")
    ]
    return [
        *pairs,
        *same_document(one / "w_star.json", two / "w_star.json"),
        *same_records(one / "metrics.jsonl", two / "metrics.jsonl"),
    ]


def _profile(quiet: Path, other: Path, table: str = "table.json") -> list[str]:
    visits = [_visits(folder / table) for folder in (quiet, other)]
    planned = {name: WORKERS * count for name, count in _planned(visits[0]).items()}
    found = [] if set(visits[0]) == set(visits[1]) else ["other entries"]
    spaces = [json.loads((folder / table).read_text())["space_hash"] for folder in (quiet, other)]
    found += [] if spaces[0] == spaces[1] else ["another space"]
    return found + [
        f"{name}: {visits[1][name]} visits, not {planned[name]}" for name in planned if visits[1][name] != planned[name]
    ]


def _visits(table: Path) -> Counter[str]:
    evidence = json.loads(table.read_text())["evidence"]
    entries = [*evidence["parts"], *evidence["correction"]["networks"], *evidence["validation"]["networks"]]
    return Counter({entry["name"]: len(entry["samples_ms"]) for entry in entries})


def _planned(visits: Counter[str]) -> dict[str, int]:
    """Of one worker: moments that entries share are visited half as often again."""
    return {name: VISITS if count == WORKERS * VISITS else count // WORKERS for name, count in visits.items()}


def _estimate(quiet: Path, other: Path, run: str = "run") -> list[str]:
    passes = [
        sorted(path.relative_to(folder).as_posix() for path in (folder / run / "samples").rglob("*.npz"))
        for folder in (quiet, other)
    ]
    unequal = [] if passes[0] == passes[1] else ["other passes were kept"]
    return unequal + same_document(quiet / run / "estimator.json", other / run / "estimator.json")


def _finetune(quiet: Path, other: Path, folder: str = "tuned") -> list[str]:
    one, two = quiet / folder, other / folder
    return [
        *same_bytes(one / "network.safetensors", two / "network.safetensors"),
        *same_document(one / "network.json", two / "network.json"),
        *same_records(one / "metrics.jsonl", two / "metrics.jsonl"),
    ]


def _export(quiet: Path, other: Path) -> list[str]:
    one, two = quiet / "bundles" / "quick", other / "bundles" / "quick"
    names = [sorted(path.name for path in folder.iterdir()) for folder in (one, two)]
    return [*([] if names[0] == names[1] else ["other files"]), *same_graph(one / "model.onnx", two / "model.onnx")]


def _prune(quiet: Path, other: Path) -> list[str]:
    """Widths follow from what was measured; the table is whole, and equal widths come to equal weights."""
    one, two = (json.loads((folder / "pruned" / "pruned.json").read_text()) for folder in (quiet, other))
    found = same_bytes(
        quiet / "pruned" / "original" / "network.safetensors", other / "pruned" / "original" / "network.safetensors"
    )
    for first, second in zip(one["networks"], two["networks"], strict=True):
        if first["widths"] == second["widths"] and first["validation_accuracy"] != second["validation_accuracy"]:
            found.append(f"{first['method']}: other weights for equal widths")
    return found + _profile(quiet, other, "pruned/widths.json")


def _run(quiet: Path, other: Path) -> list[str]:
    bundle = other / "all" / "bundles" / "quick" / "manifest.json"
    found = [] if bundle.exists() else ["no bundle"]
    return [
        *found,
        *_train(quiet, other, "all"),
        *_estimate(quiet, other, "all"),
        *_profile(quiet, other, "all/devices/quick/table.json"),
    ]


PROFILE = ("profile", "--space", "mini.yaml", "--out", "table.json", "--device")
DATA = ("--space", "mini.yaml", "--data", "folder:small")
COMMANDS = (
    Command("train", ("train", *DATA, "--out", "run", *_set(TRAINING)), (), ("run",), _train, "run/.lock"),
    Command("profile", (*PROFILE, "quick.yaml"), (), ("table.json",), _profile, ".table.json.lock"),
    Command(
        "profile over ssh", (*PROFILE, "board.yaml"), (), ("table.json",), _profile, ".table.json.lock"
    ),
    Command("estimate", ("estimate", "--supernet", "run", *PASSES), ("run",), ("run",), _estimate, "run/.lock"),
    Command(
        "finetune",
        ("finetune", "found.json", "--supernet", "run", "--out", "tuned", *_set(TUNING)),
        ("run", "table.json", "found.json"), ("tuned",), _finetune, "tuned/.lock",
    ),
    Command(
        "prune",
        ("prune", "tuned", "--ratio", "0.2", "--device", "quick.yaml", "--out", "pruned", "--runs", "10",
         "--rounds", "20", *_set(TUNING)),
        ("tuned",), ("pruned",), _prune, "pruned/.lock", ("pruned.json is there already", "is missed: the pruned file"),
    ),
    Command(
        "export",
        ("export", "tuned", "--device", "quick.yaml", "--out", "bundles", "--patience", "0"),
        ("run", "table.json", "found.json", "tuned"), ("bundles",), _export, "bundles/.quick.lock",
    ),
    Command(
        "run",
        ("run", *DATA, "--device", "quick.yaml:1000", "--out", "all", "--patience", "0", "--refine", "2",
         *_set([*TRAINING, *TUNING]), *PASSES),
        (), ("all",), _run, "all/.lock",
    ),
)  # fmt: skip


def prepare(quiet: Path, wanted: set[str]) -> dict[str, float]:
    """Everything once without any fault: the results to compare with, and what later commands need. Seconds of each."""
    (quiet / "mini.yaml").write_text(SPACE)
    (quiet / "quick.yaml").write_text(DEVICE)
    script = ROOT / "examples" / "own-data" / "write_images.py"
    make = [sys.executable, str(script), str(quiet / "small"), "--per-class", str(IMAGES)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    search = ("search", "--estimator", "run/estimator.json", "--latency", "table.json:1000", "--out", "found.json")
    seconds = {}
    for command in COMMANDS:
        if command.name == "profile over ssh":
            continue  # the table is that of `profile`
        if command.name in wanted or command.name in ("train", "profile", "estimate", "finetune"):
            if command.name == "finetune":
                _succeed(search, quiet)
            seconds[command.name] = _succeed(command.words, quiet)
    seconds["profile over ssh"] = 1.5 * seconds["profile"]
    return seconds


def _succeed(words: tuple[str, ...], folder: Path) -> float:
    attempt = Attempt.start(words, folder)
    if attempt.wait() != 0:
        raise SystemExit(f"`deploynas {' '.join(words)}` failed without any fault:\n{attempt.said()}")
    return attempt.seconds
