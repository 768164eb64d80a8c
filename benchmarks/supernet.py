"""A training step with a path for every image, against the heaviest network and one sub-network at a time.

    python benchmarks/supernet.py

Forward and backward of the `fashion` space on this machine's CPU, at several batches and widths, in images a
second. The three ways take turns inside one run, so that a slow moment hits them all; medians are compared.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from deploynas.space import Space
from deploynas.supernet.network import Supernet
from deploynas.supernet.paths import as_paths

ROUNDS = 7
NAIVE_IMAGES = 16  # one image at a time takes long; its images a second do not depend on how many
CASES = [(1, 64), (1, 128), (1, 256), (1, 512), (2, 128), (2, 256), (4, 128)]  # width, batch
RESULT = Path(__file__).with_name("results") / "supernet.json"


def widened(space: Space, times: int) -> Space:
    """The same decisions with every width multiplied."""
    first = space.first and replace(
        space.first,
        in_channels=space.first.in_channels * times,
        out_channels=space.first.out_channels * times,
    )
    return replace(
        space,
        stem_channels=space.stem_channels * times,
        first=first,
        stages=tuple(replace(stage, out_channels=stage.out_channels * times) for stage in space.stages),
        head_features=space.head_features * times,
    )


def measure(space: Space, batch: int) -> dict[str, float]:
    """Median seconds of a step, an image: heaviest, multi-path, one sub-network at a time."""
    net = Supernet(space).to(memory_format=torch.channels_last).train()
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    shape = (batch, space.in_channels, space.height, space.width)
    images = torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)

    def heaviest() -> int:
        net(images).square().mean().backward()
        return batch

    def multi_path() -> int:
        net(images, as_paths(space.decisions.draw(batch, rng))).square().mean().backward()
        return batch

    def one_at_a_time() -> int:
        net.eval()  # a single image has no batch statistics
        rows = space.decisions.draw(NAIVE_IMAGES, rng)
        for i, architecture in enumerate(space.architectures(rows)):
            net(images[i : i + 1], architecture).square().mean().backward()
        net.train()
        return NAIVE_IMAGES

    ways: dict[str, Callable[[], int]] = {
        "heaviest": heaviest,
        "multi_path": multi_path,
        "one_at_a_time": one_at_a_time,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 2):
        for name, step in ways.items():
            net.zero_grad()
            start = time.perf_counter()
            count = step()
            if turn >= 2:  # the first turns prepare kernels
                seconds[name].append((time.perf_counter() - start) / count)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    base = Space.load("fashion")
    rows = []
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians of {ROUNDS} steps\n")
    print("| width | batch | heaviest, img/s | multi-path, img/s | one at a time, img/s | step ratio |")
    print("|---|---|---|---|---|---|")
    for width, batch in CASES:
        seconds = measure(widened(base, width), batch)
        rate = {name: 1 / value for name, value in seconds.items()}
        ratio = seconds["multi_path"] / seconds["heaviest"]
        rows.append({"width": width, "batch": batch, "images_per_s": rate, "step_ratio": ratio})
        numbers = " | ".join(f"{rate[name]:.0f}" for name in ("heaviest", "multi_path", "one_at_a_time"))
        print(f"| x{width} | {batch} | {numbers} | {ratio:.2f} |", flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    machine = {
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    RESULT.write_text(json.dumps({"machine": machine, "rounds": ROUNDS, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
