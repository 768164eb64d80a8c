"""Solvers side by side on full-size problems: time, gap to the optimum, violation of the budget.

    python benchmarks/solvers.py [--native-problems 6 --native-time-limit-s 10]

36 problems: the `imagenet` space (5 stages x 4 blocks x 12 configurations), six synthetic instances, six
budgets each. Latency is MACs times log-normal noise. In three instances accuracy grows with MACs, with noise;
in the other three it is independent of them. Accuracies are scaled so that the frontier, from the fastest
network to the best, spans 10 points. Prints Markdown tables and writes `benchmarks/results/solvers.json`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import native_solvers
import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.blocks.inverted_residual import InvertedResidualConfig
from deploynas.costs import resource_table
from deploynas.files import now, write_json
from deploynas.latency.table import LatencyTable
from deploynas.search.bcfw import Bcfw
from deploynas.search.evolution import Evolution
from deploynas.search.exact import Exact
from deploynas.search.frontier import Frontier, frontier
from deploynas.search.milp import Milp
from deploynas.search.problem import Limit, Problem
from deploynas.space import Architecture, Space

RESULTS = Path(__file__).parent / "results" / "solvers.json"
BUDGETS = (0.05, 0.15, 0.3, 0.45, 0.6, 0.8)  # of the way from the fastest network to the best


@dataclass
class Instance:
    space: Space
    estimator: BilinearEstimator
    tables: list[LatencyTable]
    points: Frontier


@dataclass
class Tally:
    """What one solver did on all problems."""

    seconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # in points
    overruns: list[float] = field(default_factory=list)  # cost / budget - 1 where positive
    proven: int = 0
    unsolved: int = 0

    def summary(self) -> dict[str, Any]:
        return {
            "problems": len(self.seconds),
            "median_s": statistics.median(self.seconds),
            "max_s": max(self.seconds),
            "mean_gap_points": statistics.fmean(self.gaps) if self.gaps else None,
            "max_gap_points": max(self.gaps, default=None),
            "over_budget": len(self.overruns),
            "worst_overrun": max(self.overruns, default=0.0),
            "proven": self.proven,
            "unsolved": self.unsolved,
        }


def instance(space: Space, seed: int, devices: int = 3) -> Instance:
    rng = np.random.default_rng(seed)
    fixed, blocks = resource_table(space, "macs")
    macs = [np.array(stage) for stage in blocks]
    tables = [
        LatencyTable.from_arrays(space, fixed / 2e7, [m / 2e7 * rng.lognormal(0, 0.25, m.shape) for m in macs])
        for _ in range(devices)
    ]
    if seed % 2 == 0:  # larger blocks are better, more or less
        worth = [np.sqrt(m / m.max()) * rng.uniform(0.5, 1.5, m.shape) + rng.normal(0, 0.2, m.shape) for m in macs]
        depth = [np.sort(rng.normal(0, 1, len(s.depths))) for s in space.stages]
    else:
        worth = [rng.normal(0, 1, m.shape) for m in macs]
        depth = [rng.normal(0, 1, len(s.depths)) for s in space.stages]
    raw = BilinearEstimator.from_arrays(space, 0.0, depth, worth)
    span = np.ptp(frontier(space, raw, tables[0]).accuracies)
    scaled = BilinearEstimator.from_arrays(
        space, 0.65, [0.1 / span * d for d in depth], [0.1 / span * w for w in worth]
    )
    return Instance(space, scaled, tables, frontier(space, scaled, tables[0]))


def budgets(points: Frontier) -> Iterator[float]:
    low, high = float(points.latencies_ms[0]), float(points.latencies_ms[-1])
    return (low + share * (high - low) for share in BUDGETS)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    outcome = run()
    return time.perf_counter() - start, outcome


def compare(instances: list[Instance], native_problems: int, native_limit_s: float) -> dict[str, Tally]:
    solvers: dict[str, Any] = {
        "exact": Exact(),
        "milp": Milp(),
        "bcfw": Bcfw(),
        "bcfw, one start, no improvement": Bcfw(starts=1, improved=0),
        "evolution": Evolution(),
    }
    tallies = {name: Tally() for name in solvers}
    installed = native_solvers.installed() if native_problems else []
    natives = [(name, form) for name in installed for form in ("compact", "products")]
    tallies.update({f"{name}, {form}": Tally() for name, form in natives})
    Milp().solve(Problem.build(instances[0].space, instances[0].estimator, [Limit("params", 1e9)]))  # imports scipy
    asked = 0
    for i in instances:
        for budget in budgets(i.points):
            problem = Problem.build(i.space, i.estimator, [Limit(i.tables[0], budget)])
            best = i.points.best(budget)
            assert best is not None
            for name, solver in solvers.items():
                seconds, (solution,) = timed(lambda s=solver, p=problem: s.solve(p))
                _record(tallies[name], i, problem, best.accuracy, seconds, solution.architecture, solution.optimal)
            if asked < native_problems:
                for name, form in natives:
                    seconds, (found, proven) = timed(
                        lambda n=name, f=form, p=problem: native_solvers.solve(n, f, p, native_limit_s)
                    )
                    _record(tallies[f"{name}, {form}"], i, problem, best.accuracy, seconds, found, proven)
            asked += 1
    return tallies


def _record(
    tally: Tally,
    i: Instance,
    problem: Problem,
    optimum: float,
    seconds: float,
    found: Architecture | None,
    proven: bool,
) -> None:
    tally.seconds.append(seconds)
    tally.proven += proven
    if found is None:
        tally.unsolved += 1
        return
    (cost,) = problem.costs
    spent = i.tables[0].predict(found)
    if spent > cost.budget:
        tally.overruns.append(spent / cost.budget - 1)
    tally.gaps.append(100 * (optimum - i.estimator.predict(found)))


def harder(instances: list[Instance]) -> dict[str, list[float]]:
    """Seconds of what only the exact solvers do: all budgets at once, the 20 best, three limits."""
    times: dict[str, list[float]] = {"frontier": [], "top20": [], "three_limits": [], "three_limits_top5": []}
    for i in instances:
        times["frontier"].append(timed(lambda i=i: frontier(i.space, i.estimator, i.tables[0]))[0])
        for budget in budgets(i.points):
            one = Problem.build(i.space, i.estimator, [Limit(i.tables[0], budget)])
            times["top20"].append(timed(lambda p=one: Exact().solve(p, 20))[0])
            three = Problem.build(i.space, i.estimator, [Limit(table, 1.05 * budget) for table in i.tables])
            times["three_limits"].append(timed(lambda p=three: Exact().solve(p))[0])
        times["three_limits_top5"].append(timed(lambda p=three: Exact().solve(p, 5))[0])
    return times


def scaling() -> list[dict[str, Any]]:
    """The frontier of larger and larger spaces."""
    rows = []
    for stages, blocks, configs in ((3, 3, 6), (5, 4, 12), (7, 6, 24), (10, 8, 50)):
        space = wide_space(stages, blocks, configs)
        i = instance(space, 0, devices=1)
        seconds = [timed(lambda i=i: frontier(i.space, i.estimator, i.tables[0]))[0] for _ in range(5)]
        rows.append(
            {
                "stages": stages,
                "blocks": blocks,
                "configurations": configs,
                "networks": float(space.size()),
                "frontier": len(i.points),
                "median_s": statistics.median(seconds),
            }
        )
    return rows


def wide_space(stages: int, blocks: int, configs: int) -> Space:
    """Stages of the `imagenet` space, made longer and richer."""
    imagenet = Space.load("imagenet")
    choices = [InvertedResidualConfig(1 + r / 2, k, se) for r in range(13) for k in (3, 5) for se in (0.0, 0.25)][
        :configs
    ]
    depths = tuple(range(min(2, blocks), blocks + 1))
    made = tuple(
        replace(imagenet.stages[min(s, 4)], stride=1 + (s < 3), depths=depths, configs=tuple(choices))
        for s in range(stages)
    )
    return replace(imagenet, name=f"{stages}x{blocks}x{configs}", stages=made)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--native-problems", type=int, default=6, help="for SCIP and CPLEX, if installed")
    parser.add_argument("--native-time-limit-s", type=float, default=10.0)
    options = parser.parse_args()
    instances = [instance(Space.load("imagenet"), seed) for seed in range(6)]
    tallies = compare(instances, options.native_problems, options.native_time_limit_s)
    times, sizes = harder(instances), scaling()
    print("| solver | problems | median time | slowest | mean gap (points) | worst gap | over budget | proven |")
    print("|---|---|---|---|---|---|---|---|")
    for name, tally in tallies.items():
        s = tally.summary()
        gaps = (
            "none found | "
            if s["mean_gap_points"] is None
            else f"{s['mean_gap_points']:.4f} | {s['max_gap_points']:.3f}"
        )
        over = f"{s['over_budget']} (by up to {100 * s['worst_overrun']:.1g} %)" if s["over_budget"] else "0"
        print(
            f"| {name} | {s['problems']} | {1e3 * s['median_s']:.1f} ms | {1e3 * s['max_s']:.1f} ms "
            f"| {gaps} | {over} | {s['proven']} |"
        )
    print("\n| exact | median time | slowest |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {1e3 * statistics.median(seconds):.1f} ms | {1e3 * max(seconds):.1f} ms |")
    print("\n| stages | blocks | configurations | networks | time | frontier |\n|---|---|---|---|---|---|")
    for row in sizes:
        shape = f"{row['stages']} | {row['blocks']} | {row['configurations']}"
        print(f"| {shape} | {row['networks']:.1e} | {1e3 * row['median_s']:.1f} ms | {row['frontier']} |")
    write_json(
        RESULTS,
        {
            "created": now(),
            "native_time_limit_s": options.native_time_limit_s,
            "solvers": {name: tally.summary() for name, tally in tallies.items()},
            "exact_s": times,
            "scaling": sizes,
        },
    )


if __name__ == "__main__":
    main()
