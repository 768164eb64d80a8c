"""Ways to choose widths, at equal latency: exact, device-aware gates, plain gates, magnitude, random.

    python benchmarks/width.py FOLDER [--part profile tune time] [--epochs 1] [--seed 0]

One network with 7.5 million MACs is trained on the embedded Fashion-MNIST images and pruned by every method to 80, 60
and 40 per cent of its predicted latency; all are fine-tuned in the same way, from the network as it was (T = 4). Parts
can be run apart, since measuring wants a machine for itself: `profile` trains the network and measures its widths,
`tune` ranks and fine-tunes, `time` times all files in one run, interleaved. Prints Markdown and writes
`benchmarks/results/width.json`. Accuracies are of the test images; differences are image by image.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from deploynas.costs import Costs
from deploynas.device import Device
from deploynas.errors import GateError
from deploynas.files import now, write_json
from deploynas.latency.bench import Case, bench_together
from deploynas.latency.hardware import hardware, versions
from deploynas.pipeline.exported import MODEL, Wishes, write_network
from deploynas.pipeline.prunable import open_prunable
from deploynas.pipeline.prune import PruneSettings, Pruning
from deploynas.pipeline.width_methods import METHODS
from deploynas.space import Space
from deploynas.space.widths import chosen_widths
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.network import Supernet
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import load_data
from deploynas.training.evaluation import right_images
from deploynas.training.finetune import NETWORK, FineTuningTask, finetune
from deploynas.training.recipe import Recipe

RESULT = Path(__file__).parent / "results" / "width.json"
RATIOS = (0.2, 0.4, 0.6)
REFERENCE = "gates"  # that the others are compared with
SPACE = """
name: width-benchmark
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 16, stride: 2, activation: hard_swish}
stages:
  - {out: 24, stride: 1, activation: relu, depths: [2], ratios: [6], kernels: [3], se: [0]}
  - {out: 40, stride: 2, activation: hard_swish, depths: [2], ratios: [6], kernels: [5], se: [0.25]}
  - {out: 80, stride: 2, activation: hard_swish, depths: [2], ratios: [6], kernels: [3], se: [0.25]}
head: {features: 240, activation: hard_swish}
"""
TRAINING = ("finetune.epochs=6", "finetune.distillation.weight=0")


def trained(folder: Path, seed: int) -> Path:
    """The network that is pruned, trained from scratch."""
    place = folder / "network"
    path = place / f"{NETWORK}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "space.yaml").write_text(SPACE)
        space = Space.load(folder / "space.yaml")
        torch.manual_seed(seed)
        Supernet(space).save(folder / "start" / "w_star.safetensors", {"role": "w_star"})
        start, data = load_checkpoint(folder / "start" / "w_star.safetensors"), load_data("fashion-mini", space)
        recipe = Recipe.load("fashion", [f"seed={seed}", *TRAINING])
        finetune(FineTuningTask(start, space.heaviest(), data, recipe, from_scratch=True), place)
    return path


def pruning(folder: Path, epochs: int, seed: int) -> Pruning:
    network = open_prunable(str(trained(folder, seed)))
    changes = [f"seed={seed}", f"finetune.epochs={epochs}", "finetune.distillation.temperature=4"]
    settings = PruneSettings(recipe=Recipe.load("fashion", changes))
    return Pruning(network, Device.load("cpu-1t"), folder, settings)


def place_of(folder: Path, ratio: float, method: str) -> Path:
    return folder / f"{100 * ratio:.0f}" / method


def tune(work: Pruning, methods: Sequence[str]) -> None:
    table = work.table()
    whole_ms, ranker = table.predict(work.space.heaviest()), work.ranker(table)
    for method in methods:
        for ratio in RATIOS:
            budget_ms, path = (1 - ratio) * whole_ms, place_of(work.folder, ratio, method) / "w_star.safetensors"
            try:
                ranking = ranker.rank(method, budget_ms, path, {"role": "w_star"})
                widths = ranking.within(budget_ms)
            except GateError as error:
                print(f"{method} {ratio}: {error.message}", flush=True)
                continue
            result = work.finetune(ranking, widths, place_of(work.folder, ratio, method))
            print(f"{method} {ratio}: {100 * (result.test_accuracy or 0):.2f} % {chosen_widths(widths)}", flush=True)


def networks(work: Pruning) -> Iterator[tuple[float, str, Path]]:
    """Ratio, method and file of everything there is to time; the network as it was first."""
    yield 0.0, "original", work.save_original()
    for ratio in RATIOS:
        for method in METHODS:
            path = place_of(work.folder, ratio, method) / f"{NETWORK}.safetensors"
            if path.exists():
                yield ratio, method, path


def measured(work: Pruning) -> list[dict]:
    table, every = work.table(), list(networks(work))
    for _, _, path in every:
        write_network(path, work.unchanged, work.device, path.parent, Wishes(), table.forms)
    model = MODEL[work.device.precision]
    benched = bench_together([Case(path.parent / model) for _, _, path in every], work.device)
    rows, right = [], {}
    assert work.network.data.test is not None
    for (ratio, method, path), result in zip(every, benched.results, strict=True):
        checkpoint = load_checkpoint(path)
        widths, record = checkpoint.architecture, CheckpointRecord.of(checkpoint)
        assert widths is not None and result.timing is not None
        right[ratio, method] = right_images(checkpoint.model, work.unchanged, work.network.data.test)
        rows.append(
            {
                "ratio": ratio,
                "method": method,
                "widths": chosen_widths(widths),
                "macs": Costs.of(work.space, widths).macs,
                "params": Costs.of(work.space, widths).params,
                "predicted_ms": table.predict(widths),
                "undisturbed_ms": result.timing.undisturbed.latency_ms,
                "undisturbed_interval_ms": result.timing.undisturbed.interval_ms,
                "p50_ms": result.timing.clock.p50_ms,
                "before_finetuning": record.inherited_accuracy,
                "test_accuracy": float(right[ratio, method].mean()),
            }
        )
    for row in rows[1:]:
        reference = right.get((row["ratio"], REFERENCE))
        if reference is not None:
            row["ahead_of_gates"], row["ahead_of_gates_se"] = _difference(right[row["ratio"], row["method"]], reference)
    return rows


def _difference(own: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    difference = own.astype(float) - other
    return float(difference.mean()), float(difference.std(ddof=1)) / len(difference) ** 0.5


def markdown(rows: list[dict]) -> str:
    columns = ("latency to go", "method", "MACs", "predicted", "undisturbed", "before tuning", "test", "ahead of gates")
    lines = [" | ".join(["", *columns, ""]).strip(), "|---" * len(columns) + "|"]
    for row in rows:
        ahead = "–"
        if "ahead_of_gates" in row and row["method"] != REFERENCE:
            ahead = f"{100 * row['ahead_of_gates']:+.2f} ± {196 * row['ahead_of_gates_se']:.2f}"
        before = row["before_finetuning"]
        cells = (
            f"{100 * row['ratio']:.0f} %",
            row["method"],
            f"{row['macs'] / 1e6:.2f} M",
            f"{row['predicted_ms']:.4f} ms",
            f"{row['undisturbed_ms']:.4f} ms",
            "–" if before is None else f"{100 * before:.1f} %",
            f"{100 * row['test_accuracy']:.2f} %",
            ahead,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(rows: list[dict]) -> str:
    """Whether knowing the device was worth anything, as far as these images and this one seed can tell."""
    said = []
    for ratio in RATIOS:
        for method in ("device-aware", "exact"):
            row = next((r for r in rows if (r["ratio"], r["method"]) == (ratio, method)), None)
            gates = next((r for r in rows if (r["ratio"], r["method"]) == (ratio, REFERENCE)), None)
            if row is None or gates is None:
                said.append(f"{100 * ratio:.0f} %: no comparison of {method} with gates")
                continue
            half = 1.96 * row["ahead_of_gates_se"]
            ahead = "ahead" if row["ahead_of_gates"] > half else "behind" if row["ahead_of_gates"] < -half else "level"
            slower = row["undisturbed_ms"] / gates["undisturbed_ms"] - 1
            said.append(f"{100 * ratio:.0f} %: {method} is {ahead}, {100 * slower:+.1f} % latency against gates")
    return "\n".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", nargs="+", default=["profile", "tune", "time"], choices=["profile", "tune", "time"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, help="to tune")
    parser.add_argument("--epochs", type=int, default=1, help="of fine-tuning")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    work = pruning(asked.folder, asked.epochs, asked.seed)
    if "profile" in asked.part:
        print(f"the table is off by {100 * (work.table().mean_error or 0):.1f} % in the mean on networks", flush=True)
    if "tune" in asked.part:
        tune(work, asked.methods)
    if "time" in asked.part:
        rows = measured(work)
        print(f"{markdown(rows)}\n\n{verdict(rows)}")
        about = {
            "date": now(),
            "hardware": hardware().model_dump(),
            "versions": versions(),
            "table_error": work.table().mean_error,
            "finetuning_epochs": asked.epochs,
            "seed": asked.seed,
            "test_images": len(work.network.data.test or ()),
        }
        write_json(RESULT, {**about, "networks": rows, "verdict": verdict(rows).splitlines()})


if __name__ == "__main__":
    main()
