"""What inheriting, distilling and searching are worth, at equal epochs and equal measured latency.

    python benchmarks/finetune.py RUN [--seeds 3] [--epochs 3] [--others 3]

RUN is the folder of `deploynas run`: the found network is fine-tuned with distillation, without, and from scratch; and
beside it random networks whose measured latency is within 3 % of its own, and uniform ones (the same configuration
everywhere) that come closest, of all and of those with the largest kernels. Needs the time of (6 + others) * seeds
fine-tunings.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, versions
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.finetune import FineTuneOptions, finetune
from deploynas.pipeline.run_folder import RunFolder
from deploynas.report.document import ReportFile
from deploynas.space import Architecture, Space
from deploynas.training.recipe import PRESETS, Recipe

RESULT = Path(__file__).parent / "results" / "finetune.json"
SAME = 0.03  # two latencies are the same if they differ by less


def random_like(table: LatencyTable, device: Device, wanted_ms: float, count: int) -> list[tuple[Architecture, float]]:
    """Random networks that measure like the found one: drawn by the table, then measured whole."""
    space, rng, drawn = table.space, np.random.default_rng(0), list[Architecture]()
    while len(drawn) < 3 * count:
        candidate = space.sample(rng)
        if abs(table.predict(candidate) / wanted_ms - 1) < SAME:
            drawn.append(candidate)
    timed = [m.latency_ms for m in measure_networks(device, space, drawn)]
    order = sorted(range(len(drawn)), key=lambda i: abs(timed[i] / wanted_ms - 1))
    return [(drawn[i], timed[i]) for i in order[:count]]


def uniform_like(table: LatencyTable, device: Device, wanted_ms: float, kernels: int = 0) -> tuple[Architecture, float]:
    """The same depth and configuration everywhere, with kernels of at least this size; as close as there is one."""
    space: Space = table.space
    options = [
        space.architecture([[c] * depth for _ in space.stages])
        for depth in set.intersection(*(set(stage.depths) for stage in space.stages))
        for c in range(min(len(stage.configs) for stage in space.stages))
        if all(stage.configs[c].kernel >= kernels for stage in space.stages)
    ]
    best = min(options, key=lambda a: abs(table.predict(a) / wanted_ms - 1))
    return best, measure_networks(device, space, [best])[0].latency_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--others", type=int, default=3, help="random networks")
    options = parser.parse_args()
    report = ReportFile.load(options.run / "bundles" / options.device)
    table = LatencyTable.load(RunFolder(options.run).device(options.device).table)
    device, space = Device.load(options.device), table.space
    found, found_ms = space.architecture(report.choices), report.shipped.latency_ms
    supernet = RunFolder(options.run).w_star
    if not supernet.exists():
        raise InputError(f"{supernet}: no such file", hint="give the folder of `deploynas run`")
    off = "finetune.distillation.weight=0"
    arms: list[tuple[str, Architecture, float, list[str], bool]] = [
        ("found, inherited, distilled", found, found_ms, [], False),
        ("found, inherited, labels only", found, found_ms, [off], False),
        ("found, from scratch, distilled", found, found_ms, [], True),
        ("found, from scratch, labels only", found, found_ms, [off], True),
        ("uniform, inherited, distilled", *uniform_like(table, device, found_ms), [], False),
        (
            "uniform, largest kernels, inherited, distilled",
            *uniform_like(
                table, device, found_ms, min(max(config.kernel for config in stage.configs) for stage in space.stages)
            ),
            [],
            False,
        ),
    ]
    for i, (architecture, latency_ms) in enumerate(random_like(table, device, found_ms, options.others)):
        arms.append((f"random {i + 1}, inherited, distilled", architecture, latency_ms, [], False))
    rows = []
    print(f"| network | measured, ms | accuracy, %, mean of {options.seeds} seeds | std |\n|---|---:|---:|---:|")
    for name, architecture, latency_ms, changes, scratch in arms:
        accuracies = []
        for seed in range(options.seeds):
            preset = space.name if space.name in PRESETS else "fashion"
            recipe = Recipe.load(preset, [f"finetune.epochs={options.epochs}", f"seed={seed}", *changes])
            with tempfile.TemporaryDirectory() as folder:
                how = FineTuneOptions(recipe, from_scratch=scratch)
                made = finetune(supernet, architecture, None, folder, how)
            accuracies.append(made.validation_accuracy)
        std = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0
        rows.append(
            {"name": name, "latency_ms": latency_ms, "accuracies": accuracies, "architecture": str(architecture)}
        )
        print(f"| {name} | {latency_ms:.4f} | {100 * np.mean(accuracies):.2f} | {100 * std:.2f} |", flush=True)
    settings = {"seeds": options.seeds, "epochs": options.epochs, "device": device.describe()}
    write_json(
        RESULT,
        {"created": now(), "hardware": hardware().model_dump(), "versions": versions(), **settings, "rows": rows},
    )


if __name__ == "__main__":
    main()
