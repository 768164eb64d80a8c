"""Two checkouts of this repository side by side: did the code between them become slower?

    python benchmarks/before_after.py --before ../older-checkout [--rounds 5] [--only solvers]

Every round times each group of tasks in a fresh process for each checkout, in the order before, after, after, before,
and so on, so that neither always comes first and a slow moment of the machine hits both. A time is the median of a
task's repeats in one process; a ratio is after over before in one round. Prints a Markdown table of the medians over
all rounds and writes `benchmarks/results/before_after.json`. Other programs on the machine move single rounds by tens
of per cent: `--before` with another checkout of the same commit shows how much a ratio means.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results" / "before_after.json"
BATCH = 128
Task = tuple[str, Callable[[], object]]


# -- what is timed: names that both checkouts have -------------------------------------------------


def solver_tasks() -> Iterator[Task]:
    """One problem of the size of `imagenet`: 5 stages, 4 blocks, 12 configurations; latency follows MACs."""
    import numpy as np

    import deploynas as dn
    from deploynas.costs import resource_table
    from deploynas.search.problem import Problem
    from deploynas.search.solver import load_solver

    space, rng = dn.Space.load("imagenet"), np.random.default_rng(0)
    fixed, blocks = resource_table(space, "macs")
    macs = [np.array(stage) for stage in blocks]
    tables = [
        dn.LatencyTable.from_arrays(space, fixed / 2e7, [m / 2e7 * rng.lognormal(0, 0.25, m.shape) for m in macs])
        for _ in range(3)
    ]
    worth = [0.01 * (np.sqrt(m / m.max()) * rng.uniform(0.5, 1.5, m.shape) + rng.normal(0, 0.2, m.shape)) for m in macs]
    depth = [np.sort(rng.normal(0, 0.01, len(stage.depths))) for stage in space.stages]
    estimator = dn.BilinearEstimator.from_arrays(space, 0.65, depth, worth)
    budgets = []
    for table in tables:
        points = dn.frontier(space, estimator, table)
        budgets.append(0.6 * float(points.latencies_ms[0]) + 0.4 * float(points.latencies_ms[-1]))
    limits = [dn.Limit(table, budget) for table, budget in zip(tables, budgets, strict=True)]
    # all solvers are data classes, whatever else they are
    evolution: Any = replace(load_solver("evolution"), generations=40)  # type: ignore[type-var]
    yield "frontier", lambda: dn.frontier(space, estimator, tables[0])
    yield "exact, three limits", lambda: dn.search(space, estimator, limits)
    yield "20 best", lambda: dn.search(space, estimator, limits[:1], top=20)
    yield "bcfw", lambda: dn.search(space, estimator, limits[:1], "bcfw")
    build: Any = vars(Problem).get("build") or vars(Problem)["of"]  # renamed on the way
    yield "evolution, 40 generations", lambda: evolution.solve(build.__func__(Problem, space, estimator, limits[:1]))


def supernet_tasks() -> Iterator[Task]:
    """Forward and backward of the `fashion` supernet, and one of its sub-networks in evaluation."""
    import torch

    import deploynas as dn

    space = dn.Space.load("fashion")
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network: Any = dn.Supernet(space).to(memory_format=torch.channels_last)
    shape = (BATCH, space.in_channels, space.height, space.width)
    images = torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)
    draw = path_source(space, generator)
    middle = space.architecture([[len(s.configs) // 2] * s.depths[len(s.depths) // 2] for s in space.stages])

    def step(threads: int, *paths: Any) -> None:
        torch.set_num_threads(threads)
        network.train().zero_grad()
        network(images, *paths).square().mean().backward()

    def evaluate(threads: int) -> None:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            network.eval()(images, middle)

    for threads in (1, 2):
        label = f"{threads} thread{'s' if threads > 1 else ''}"
        yield f"multi-path step, {label}", lambda n=threads: step(n, draw())
        yield f"heaviest step, {label}", lambda n=threads: step(n)
        yield f"one sub-network, evaluation, {label}", lambda n=threads: evaluate(n)


def path_source(space: Any, generator: Any) -> Callable[[], Any]:
    """Draws a path for every image of a batch, with the checkout's own function where its name is known."""
    import torch

    try:
        from deploynas.supernet.paths import random_paths
    except ImportError:  # moved: a column a stage for depths, then a column a block, as ever
        sizes = [len(stage.depths) for stage in space.stages]
        sizes += [len(stage.configs) for stage in space.stages for _ in range(stage.max_depth)]
        return lambda: torch.stack([torch.randint(size, (BATCH,), generator=generator) for size in sizes], dim=1)
    return lambda: random_paths(space, BATCH, generator)


def graph_tasks() -> Iterator[Task]:
    """ONNX graphs of the `imagenet` space: every block of it, and one whole network."""
    import deploynas as dn

    space = dn.Space.load("imagenet")
    places = [
        (s, b, c)
        for s, stage in enumerate(space.stages)
        for b in range(stage.max_depth)
        for c in range(len(stage.configs))
    ]

    def blocks(precision: str) -> None:
        for place in places:
            dn.graph.block(space, *place, precision=precision).SerializeToString()

    def network(precision: str) -> None:
        dn.graph.network(space, space.heaviest(), precision=precision).SerializeToString()

    for precision in ("fp32", "int8"):
        yield f"{len(places)} blocks, {precision}", lambda p=precision: blocks(p)
        yield f"whole network, {precision}", lambda p=precision: network(p)


GROUPS: dict[str, Callable[[], Iterator[Task]]] = {
    "solvers": solver_tasks,
    "supernet": supernet_tasks,
    "graph_building": graph_tasks,
}


# -- timing, in a process of its own ---------------------------------------------------------------


def time_group(group: str, checkout: Path, least_s: float) -> dict[str, float]:
    """Median seconds of every task: at least three repeats, and as many as fill `least_s`."""
    import deploynas

    if checkout not in Path(str(deploynas.__file__)).resolve().parents:
        raise SystemExit(f"{deploynas.__file__} was imported, expected the one in {checkout}")
    seconds = {}
    for name, run in GROUPS[group]():
        run()  # imports and caches
        samples: list[float] = []
        while len(samples) < 3 or sum(samples) < least_s:
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
        seconds[name] = statistics.median(samples)
    return seconds


def in_fresh_process(group: str, checkout: Path, least_s: float) -> dict[str, float]:
    command = [sys.executable, str(HERE), "--time-here", group, "--before", str(checkout), "--least-s", str(least_s)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{group} failed in {checkout}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


# -- comparison ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    group: str
    task: str
    before_s: float  # medians over all rounds
    after_s: float
    ratio: float
    lowest_ratio: float  # of any round
    highest_ratio: float


def compare(group: str, before: Path, after: Path, rounds: int, least_s: float) -> list[Row]:
    times: dict[Path, list[dict[str, float]]] = {before: [], after: []}
    for number in range(rounds):
        for checkout in (before, after) if number % 2 == 0 else (after, before):
            times[checkout].append(in_fresh_process(group, checkout, least_s))
    rows = []
    for task in times[before][0]:
        old, new = ([measured[task] for measured in times[checkout]] for checkout in (before, after))
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        medians = (statistics.median(old), statistics.median(new), statistics.median(ratios))
        rows.append(Row(group, task, *medians, min(ratios), max(ratios)))
    return rows


def commit_of(checkout: Path) -> str:
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the older checkout; this file is in the newer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=GROUPS, help="one group of tasks")
    parser.add_argument("--least-s", type=float, default=0.5, help="seconds that the repeats of a task take at least")
    parser.add_argument("--time-here", choices=GROUPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    before, after = options.before.resolve(), HERE.parent.parent
    if options.time_here:
        print(json.dumps(time_group(options.time_here, before, options.least_s)))
        return
    if not (before / "deploynas").is_dir():
        parser.error(f"{before} is not a checkout of deploynas")
    rows: list[Row] = []
    print("| group | task | before | after | after / before | of single rounds |\n|---|---|---:|---:|---:|---|")
    for group in [options.only] if options.only else GROUPS:
        for row in compare(group, before, after, options.rounds, options.least_s):
            rows.append(row)
            print(
                f"| {row.group} | {row.task} | {1e3 * row.before_s:.1f} ms | {1e3 * row.after_s:.1f} ms "
                f"| {row.ratio:.3f} | {row.lowest_ratio:.2f} to {row.highest_ratio:.2f} |",
                flush=True,
            )
    document = {
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "before": commit_of(before),
        "after": commit_of(after),
        "rounds": options.rounds,
        "rows": [asdict(row) for row in rows],
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
