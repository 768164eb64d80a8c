"""What searching, inheriting and distilling are worth after fine-tuning, at equal epochs and equal measured latency.

    python benchmarks/finetune.py RUN [--part search weights] [--seeds 3] [--random 8] [--budgets 1 0.5 0.7 2]

RUN is the folder of `deploynas run`. Part `search`: the network that the run shipped, and those that its estimator
finds at multiples of that latency (several seeds), beside random networks of the same measured latency (one seed each)
and the best uniform network that is no slower (several seeds), all fine-tuned in the same way. The difference comes
with a 95 % interval: images, seeds and the draw of random networks vary. Part `weights`: the shipped network fine-tuned
with distillation and without, from inherited weights and from scratch. Accuracies are of the test images if the data
has some. Prints Markdown and writes `benchmarks/results/finetune.json`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from deploynas import search
from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.device import Device
from deploynas.errors import GateError
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, versions
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.finetune import FineTuneOptions, fine_tuning_task
from deploynas.pipeline.gain import Rivals
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.supernet import TrainedSupernet, open_supernet
from deploynas.search.problem import Limit
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.training.evaluation import right_images
from deploynas.training.finetune import finetune
from deploynas.training.recipe import Recipe

RESULT = Path(__file__).parent / "results" / "finetune.json"
NO_SLOWER = 1.02  # two measurements of one network differ by about this much


@dataclass(frozen=True)
class Arm:
    """Networks of one role, fine-tuned."""

    name: str
    networks: tuple[str, ...]
    latencies_ms: tuple[float, ...]
    accuracies: tuple[float, ...]  # of each network and seed


@dataclass(frozen=True)
class Difference:
    """How far the found network is above an arm."""

    against: str
    points: float
    interval: tuple[float, float]  # 95 %


class Tuner:
    """Fine-tunes networks of one run, and says which images each is then right about."""

    def __init__(self, run: Path) -> None:
        self.supernet: TrainedSupernet = open_supernet(run)
        data = self.supernet.data
        self.images = data.test if data.test is not None else data.validation
        self.part = "test" if data.test is not None else "validation"

    def right(
        self, network: Architecture, seed: int, changes: tuple[str, ...] = (), scratch: bool = False
    ) -> np.ndarray:
        recipe = Recipe.for_space(self.supernet.space.name, None, [f"seed={seed}", *changes])
        with tempfile.TemporaryDirectory() as folder:
            task = fine_tuning_task(self.supernet, network, FineTuneOptions(recipe, from_scratch=scratch))
            made = finetune(task, Path(folder))
            return right_images(load_checkpoint(made.path).model, self.supernet.batches, self.images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--part", nargs="+", choices=["search", "weights"], default=["search", "weights"])
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--random", type=int, default=8)
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 0.5, 0.7, 2.0], help="times the run's own")
    options = parser.parse_args()
    folder, device, tuner = RunFolder(options.run), Device.load(options.device), Tuner(options.run)
    files = folder.device(options.device)
    table, answer = LatencyTable.load(files.table), SearchFile.load(files.search)
    own = answer.architectures()[0]
    estimator = load_estimator(answer.estimator.path)
    document: dict[str, object] = {
        "created": now(),
        "hardware": hardware().model_dump(),
        "versions": versions(),
        "load_at_start": os.getloadavg()[0],
        "seeds": options.seeds,
        "images": {"part": tuner.part, "number": len(tuner.images)},
        "device": device.describe(),
    }
    if "search" in options.part:
        compared = document["search"] = list[dict[str, object]]()
        for times in options.budgets:
            budget_ms = times * table.predict(own)
            try:
                found = own if times == 1 else search(table.space, estimator, [Limit(table, budget_ms)]).architecture
            except GateError as error:
                print(f"\n{error.message}", flush=True)
                compared.append({"times": times, "budget_ms": budget_ms, "no_network": error.message})
                continue
            arms = Arms(tuner, device, table, estimator, found)
            compared.append({"times": times, "budget_ms": budget_ms, **arms.compared(options.seeds, options.random)})
            write_json(RESULT, document)
    if "weights" in options.part:
        document["weights"] = weights(tuner, answer.architectures()[0], options.seeds)
        write_json(RESULT, document)


@dataclass(frozen=True)
class Arms:
    """A found network and those that it is compared with."""

    tuner: Tuner
    device: Device
    table: LatencyTable
    estimator: StoredEstimator
    found: Architecture

    def compared(self, seeds: int, randoms: int) -> dict[str, object]:
        found, rivals = self.found, Rivals.of(self.found, self.estimator, self.table)
        networks = [found, *rivals.uniform, *rivals.random]
        timed = measure_networks(self.device, self.table.space, networks, forms=self.table.forms)
        latency = dict(zip(networks, (m.latency_ms for m in timed), strict=True))
        uniform = [n for n in rivals.uniform if latency[n] <= NO_SLOWER * latency[found]][:1]
        random = sorted(rivals.random, key=lambda n: abs(latency[n] / latency[found] - 1))[:randoms]
        named = {"found": (found,), "best uniform": tuple(uniform), f"{randoms} random": tuple(random)}
        named = {name: members for name, members in named.items() if members}
        print(f"\n{self.table.predict(found):.4f} ms, expected one-shot {_expected(self.estimator, found)}, ", end="")
        print(f"{self.tuner.part} images\n")
        print("| network | measured, ms | accuracy, % | found is above by, points (95 %) |")
        print("|---|---:|---:|---:|", flush=True)
        right, arms, differences = dict[str, np.ndarray](), [], []
        for name, members in named.items():
            runs = [(members[0], seed) for seed in range(seeds)] if len(members) == 1 else [(n, 0) for n in members]
            right[name] = np.stack([self.tuner.right(network, seed) for network, seed in runs])
            texts, times = tuple(str(n) for n in members), tuple(latency[n] for n in members)
            arms.append(Arm(name, texts, times, tuple(right[name].mean(axis=1).tolist())))
            if name != "found":
                differences.append(difference(name, right["found"], right[name]))
            show(arms[-1], differences[-1] if name != "found" else None)
        return {
            "expected_one_shot": asdict(self.estimator.expect(found)),
            "arms": [asdict(arm) for arm in arms],
            "differences": [asdict(one) for one in differences],
        }


def show(arm: Arm, ahead: Difference | None) -> None:
    text = f"{ahead.points:+.2f} ({ahead.interval[0]:+.2f} to {ahead.interval[1]:+.2f})" if ahead else ""
    spread = f" ± {100 * np.std(arm.accuracies, ddof=1):.2f}" if len(arm.accuracies) > 1 else ""
    mean = f"{100 * np.mean(arm.accuracies):.2f}{spread}"
    print(f"| {arm.name} | {np.mean(arm.latencies_ms):.4f} | {mean} | {text} |", flush=True)


def _expected(estimator: StoredEstimator, network: Architecture) -> str:
    found = estimator.expect(network)
    return f"{100 * found.accuracy:.2f} %" + (f" ± {100 * found.se:.2f}" if found.se is not None else "")


def difference(name: str, found: np.ndarray, others: np.ndarray) -> Difference:
    """Both (networks or seeds, images): variance of the images, of the found network's seeds, and of the others."""
    each = found.mean(axis=0) - others.mean(axis=0)
    parts = [(float(each.var(ddof=1)) / len(each), len(each) - 1)]
    for side in (found, others):
        if len(side) > 1:
            parts.append((float(side.mean(axis=1).var(ddof=1)) / len(side), len(side) - 1))
    variance = sum(v for v, _ in parts)
    freedom = variance**2 / sum(v**2 / degrees for v, degrees in parts)  # Satterthwaite
    half = 100 * float(student.ppf(0.975, freedom)) * variance**0.5
    points = 100 * float(each.mean())
    return Difference(name, points, (points - half, points + half))


def weights(tuner: Tuner, found: Architecture, seeds: int) -> list[dict[str, object]]:
    off, rows = "finetune.distillation.weight=0", list[dict[str, object]]()
    print(f"\n| found network | accuracy, %, mean of {seeds} seeds | std |\n|---|---:|---:|", flush=True)
    for name, changes, scratch in (
        ("inherited, distilled", (), False),
        ("inherited, labels only", (off,), False),
        ("from scratch, distilled", (), True),
        ("from scratch, labels only", (off,), True),
    ):
        accuracies = [float(tuner.right(found, seed, changes, scratch).mean()) for seed in range(seeds)]
        std = float(np.std(accuracies, ddof=1)) if seeds > 1 else 0.0
        print(f"| {name} | {100 * np.mean(accuracies):.2f} | {100 * std:.2f} |", flush=True)
        rows.append({"name": name, "accuracies": accuracies})
    return rows


if __name__ == "__main__":
    main()
