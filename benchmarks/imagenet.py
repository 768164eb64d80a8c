"""What searching Once-for-all's ImageNet space is worth on this machine, from nothing to measured networks.

    OMP_NUM_THREADS=1 python benchmarks/imagenet.py                       # profiles first; about five minutes
    OMP_NUM_THREADS=1 python benchmarks/imagenet.py --table my.json       # with a table of `ofa-mbv3` from this machine
    OMP_NUM_THREADS=1 python benchmarks/imagenet.py --quick               # does it run? means nothing, writes nothing

For six budgets, from the fast end of random networks to the slow end: the expected ImageNet top-1 of the network that
`search --estimator ofa-mbv3-imagenet` finds, of the best uniform network within the budget (one kernel, one ratio, one
step of depth everywhere), and of 200 random networks whose predicted latency is within 2 % of the found one's, in the
mean and of the best by the estimator. Estimator and judge are then the same model, which flatters what it chose. So the
data are also halved at random: what is chosen with a fit to one half is judged by a fit to the other half, and the
other way around; that table has the mean of both ways.

Then the found networks, the best uniform ones and networks of timm (random weights; a latency does not depend on them)
are timed whole, interleaved in one run. Accuracies of timm's networks are the published ones, after training of their
own; ours are those of sub-networks with Once-for-all's weights, not fine-tuned.

Prints Markdown tables and writes `benchmarks/results/imagenet.json`, each part when it is done.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import deploynas as dn
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.indexed_fit import fit_form
from deploynas.accuracy.results_table import ResultsTable
from deploynas.device import Device, Effort
from deploynas.files import now, write_json
from deploynas.latency.entries import network_entry
from deploynas.latency.entry import Entry
from deploynas.latency.hardware import hardware, load_average, versions
from deploynas.latency.measure import measure_entries
from deploynas.pipeline.rivals import random_networks, uniform_networks
from deploynas.search.frontier import Frontier
from deploynas.space import Architecture

HERE = Path(__file__).parent
DATA, RESULTS = HERE / "data" / "ofa-mbv3-imagenet.csv", HERE / "results" / "imagenet.json"
ESTIMATOR, SPACE = "ofa-mbv3-imagenet", "ofa-mbv3"
BUDGETS = 6
RANDOM, CLOSE = 200, 0.02  # networks, and how far their predicted latencies may be from the found one's

# weights, and their top-1 in per cent at 224 x 224, as timm publishes them: results/results-imagenet.csv of
# https://github.com/huggingface/pytorch-image-models, commit 0173a139
PUBLISHED = {
    "mobilenetv3_large_100": ("ra_in1k", 75.766),
    "efficientnet_lite0": ("ra_in1k", 75.480),
    "efficientnet_b0": ("ra_in1k", 77.694),
    "hardcorenas_a": ("miil_green_in1k", 75.930),
    "hardcorenas_b": ("miil_green_in1k", 76.536),
    "hardcorenas_c": ("miil_green_in1k", 77.058),
    "hardcorenas_d": ("miil_green_in1k", 77.440),
    "hardcorenas_e": ("miil_green_in1k", 77.784),
    "hardcorenas_f": ("miil_green_in1k", 78.098),
}
QUICK = Effort(workers=1, visits=2, part_visits=2, warmup_runs=0, runs=1, min_visit_ms=0.0, correction_networks=4,
               validation_networks=2, max_relative_error=1.0, time_limit_s=0.1)  # fmt: skip
VISITS = 12  # of each of two processes to each whole network


def main() -> None:
    arguments = _arguments()
    device = Device.load(arguments.device)
    if arguments.quick:
        device = device.model_copy(update={"effort": QUICK})
    document = Kept(not arguments.quick, {"load": load_average(), "device": device.describe()})
    with tempfile.TemporaryDirectory() as folder:
        path, profile_s = (arguments.table, None) if arguments.table else profiled(device, Path(folder))
        table = dn.LatencyTable.load(path)
        budgets = arguments.budgets_ms or six_budgets(table)
        document.add("seconds", seconds(table, path, profile_s, budgets[len(budgets) // 2]))
        ships = Judge.of(dn.load_estimator(ESTIMATOR), table)
        rows = [at_budget(ships, budget) for budget in budgets]
        document.add("budgets", [asdict(row) for row in rows])
        show_budgets(rows)
        first, second = (Judge.of(fit, table) for fit in halves(table.space))
        judged = [judged_by_the_other_half(first, second, budget) for budget in budgets]
        document.add("judged_by_the_other_half", [asdict(row) for row in judged])
        show_halves(judged)
        visits = device.effort.visits if arguments.quick else VISITS
        patient = device.model_copy(update={"effort": device.effort.model_copy(update={"visits": visits})})
        timed = timed_together(patient, table, rows, Path(folder))
        document.add("timed", [asdict(row) for row in timed])
        show_timed(timed)
    print(f"\nseconds: {document.content['seconds']}")


class Kept:
    """What has been done so far, in the file at once."""

    def __init__(self, in_file: bool, about: dict[str, object]) -> None:
        self.in_file = in_file
        self.content = {"created": now(), "hardware": hardware().model_dump(), "versions": versions(), **about}

    def add(self, part: str, found: object) -> None:
        self.content[part] = found
        if self.in_file:
            write_json(RESULTS, self.content)


# -- from nothing to an answer ---------------------------------------------------------------------


def profiled(device: Device, folder: Path) -> tuple[Path, float]:
    """As it is typed, with the time that a person waits."""
    written, out = folder / "device.yaml", folder / "table.json"
    write_json(written, device.describe())  # JSON is YAML
    return out, typed("profile", "--device", str(written), "--space", SPACE, "--out", str(out))


def typed(*arguments: str) -> float:
    """Seconds that a command takes, the start of Python included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "deploynas", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def seconds(table: dn.LatencyTable, path: Path, profile_s: float | None, budget_ms: float) -> dict[str, float]:
    if profile_s is None:  # what the table itself remembers
        assert table.evidence is not None, "a table from `deploynas profile`"
        profile_s = float(table.evidence.provenance["duration_s"])
    search_s = typed("search", "--estimator", ESTIMATOR, "--latency", f"{path}:{budget_ms}")
    return {"profile": round(profile_s, 1), "search": round(search_s, 1), "together": round(profile_s + search_s, 1)}


def six_budgets(table: dn.LatencyTable) -> list[float]:
    """At even ratios between latencies that 2 and 98 % of random networks keep; beyond, there are none to compare."""
    drawn = table.space.architectures(table.space.decisions.draw(1000, np.random.default_rng(1)))
    fast, slow = np.quantile([table.predict(network) for network in drawn], [0.02, 0.98])
    return [float(f"{ms:.3g}") for ms in np.geomspace(fast, slow, BUDGETS)]


# -- what is expected ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """A network, what is expected of it (per cent), and its predicted latency."""

    choices: list[list[int]]
    predicted_ms: float
    top1: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class AtBudget:
    budget_ms: float
    found: Chosen
    uniform: Chosen | None  # None: no uniform network is so fast
    random_networks: int
    random_mean: float | None
    random_std: float | None
    random_best: float | None
    times_slower: float | None  # the fastest uniform network that is expected to be as good; None: none is


@dataclass(frozen=True)
class Judge:
    """An estimator with the frontier of a table."""

    estimator: StoredEstimator
    table: dn.LatencyTable
    frontier: Frontier
    uniform: list[Architecture]

    @classmethod
    def of(cls, estimator: StoredEstimator, table: dn.LatencyTable) -> Judge:
        return cls(estimator, table, dn.frontier(table.space, estimator, table), uniform_networks(table.space))

    def best(self, budget_ms: float) -> Architecture:
        found = self.frontier.best(budget_ms)
        assert found is not None, f"no network takes less than {budget_ms} ms"
        return found.architecture

    def best_uniform(self, budget_ms: float) -> Architecture | None:
        within = [network for network in self.uniform if self.table.predict(network) <= budget_ms]
        return max(within, key=self.estimator.predict, default=None)

    def times_slower(self, found: Architecture) -> float | None:
        """How many times longer the fastest uniform network takes that is as good; None: no uniform network is."""
        wanted = self.estimator.predict(found)
        as_good = [self.table.predict(n) for n in self.uniform if self.estimator.predict(n) >= wanted]
        return min(as_good) / self.table.predict(found) if as_good else None


def at_budget(judge: Judge, budget_ms: float) -> AtBudget:
    estimator, table = judge.estimator, judge.table
    found, uniform = judge.best(budget_ms), judge.best_uniform(budget_ms)
    drawn = random_like(table, found)
    accuracies = 100 * predictions(estimator, drawn)
    return AtBudget(
        budget_ms,
        chosen(found, estimator, table),
        chosen(uniform, estimator, table) if uniform else None,
        len(drawn),
        float(accuracies.mean()) if drawn else None,
        float(accuracies.std()) if drawn else None,
        float(accuracies.max()) if drawn else None,
        judge.times_slower(found),
    )


def random_like(table: dn.LatencyTable, found: Architecture) -> list[Architecture]:
    """Every decision drawn uniformly; what is not within 2 % of the latency is thrown away."""
    found_ms = table.predict(found)
    near = random_networks(table, found, 2 * RANDOM, np.random.default_rng(0))
    return [network for network in near if abs(table.predict(network) / found_ms - 1) <= CLOSE][:RANDOM]


def predictions(estimator: StoredEstimator, networks: Sequence[Architecture]) -> np.ndarray:
    return np.array([estimator.predict(network) for network in networks])


def chosen(network: Architecture, estimator: StoredEstimator, table: dn.LatencyTable) -> Chosen:
    expected = estimator.expect(network)
    interval = expected.interval()
    assert interval is not None
    choices = [list(stage) for stage in network.choices]
    return Chosen(choices, table.predict(network), 100 * expected.accuracy, (100 * interval[0], 100 * interval[1]))


# -- judged by a fit that had no part in the choice ------------------------------------------------


@dataclass(frozen=True)
class OtherHalf:
    """Chosen by a fit to one half of the data, judged by a fit to the other half: per cent, the mean of both ways."""

    budget_ms: float
    found: float
    found_as_promised: float  # by the fit that chose
    uniform: float | None
    random_mean: float | None
    random_best: float | None  # the best by the fit that chooses
    times_slower: float | None  # a uniform network that is as good, by the fit that judges


def judged_by_the_other_half(first: Judge, second: Judge, budget_ms: float) -> OtherHalf:
    ways = [one_way(chooses, judges, budget_ms) for chooses, judges in ((first, second), (second, first))]

    def mean(name: str) -> float | None:
        values = [getattr(way, name) for way in ways]
        return None if None in values else float(np.mean(values))

    return OtherHalf(*(mean(name) for name in OtherHalf.__annotations__))  # type: ignore[arg-type]


def one_way(chooses: Judge, judges: Judge, budget_ms: float) -> OtherHalf:
    found, uniform = chooses.best(budget_ms), chooses.best_uniform(budget_ms)
    drawn, judge = random_like(chooses.table, found), judges.estimator
    return OtherHalf(
        budget_ms,
        100 * judge.predict(found),
        100 * chooses.estimator.predict(found),
        100 * judge.predict(uniform) if uniform else None,
        100 * float(predictions(judge, drawn).mean()) if drawn else None,
        100 * judge.predict(max(drawn, key=chooses.estimator.predict)) if drawn else None,
        judges.times_slower(found),
    )


def halves(space: dn.Space) -> list[StoredEstimator]:
    """Two fits of the form that ships, which have no network in common."""
    data, form = ResultsTable.read(DATA, space), dn.load_estimator(ESTIMATOR).provenance["form"]
    parts = np.array_split(np.random.default_rng(0).permutation(len(data)), 2)
    return [fit_form(space, [data.architectures[i] for i in part], data.accuracies[part], form) for part in parts]


# -- timed whole -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    network: str
    top1: float  # per cent
    kind: str  # `expected` or `published`
    latency_ms: float
    relative_error: float
    predicted_ms: float | None


def timed_together(device: Device, table: dn.LatencyTable, rows: Sequence[AtBudget], folder: Path) -> list[Timed]:
    ours = [(f"found, {row.budget_ms:g} ms", row.found) for row in rows]
    ours += [(f"best uniform, {row.budget_ms:g} ms", row.uniform) for row in rows if row.uniform]
    entries = [network_entry(name, table.space.architecture(one.choices), table.forms) for name, one in ours]
    for name in PUBLISHED:
        entries.append(Entry(key=name, kind="file", path=str(timm_file(name, folder))))
    measured = measure_entries(device, entries, space=table.space)
    timed = []
    for entry, one in zip(entries, measured, strict=True):
        mine = dict(ours).get(entry.key)
        top1, kind = (mine.top1, "expected") if mine else (PUBLISHED[entry.key][1], "published")
        predicted = mine.predicted_ms if mine else None
        timed.append(Timed(entry.key, top1, kind, one.latency_ms, one.relative_error, predicted))
    return sorted(timed, key=lambda row: row.latency_ms)


def timm_file(name: str, folder: Path) -> Path:
    import timm
    import torch

    path = folder / f"{name}.onnx"
    x = torch.zeros(1, 3, 224, 224)
    model = timm.create_model(name).eval()
    torch.onnx.export(model, (x,), str(path), input_names=["input"], output_names=["logits"], dynamo=False)
    return path.resolve()


# -- tables ----------------------------------------------------------------------------------------


def show_budgets(rows: Sequence[AtBudget]) -> None:
    print("\nExpected ImageNet top-1, per cent (90 % interval), by the estimator that chose\n")
    print(
        "| budget, ms | found | best uniform | random, mean | best of random | how many | a uniform one as good takes |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        cells = [interval(row.found), interval(row.uniform), number(row.random_mean), number(row.random_best)]
        print(f"| {row.budget_ms:g} | {' | '.join(cells)} | {row.random_networks} | {times(row.times_slower)} |")


def show_halves(rows: Sequence[OtherHalf]) -> None:
    print("\nChosen by a fit to one half of the data, judged by a fit to the other half; mean of both ways\n")
    print(
        "| budget, ms | promised | found | best uniform | random, mean | best of random | a uniform one as good takes |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        values = (row.found_as_promised, row.found, row.uniform, row.random_mean, row.random_best)
        print(f"| {row.budget_ms:g} | {' | '.join(map(number, values))} | {times(row.times_slower)} |")


def show_timed(rows: Sequence[Timed]) -> None:
    print("\nTimed whole, interleaved in one run\n")
    print("| network | top-1, % | | latency, ms | predicted, ms |")
    print("|---|---:|---|---:|---:|")
    for row in rows:
        predicted = "" if row.predicted_ms is None else f"{row.predicted_ms:.2f}"
        latency = f"{row.latency_ms:.2f} ± {100 * row.relative_error:.1f} %"
        print(f"| {row.network} | {row.top1:.2f} | {row.kind} | {latency} | {predicted} |")


def interval(one: Chosen | None) -> str:
    return "none so fast" if one is None else f"{one.top1:.2f} ({one.interval[0]:.2f} to {one.interval[1]:.2f})"


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def times(value: float | None) -> str:
    return "no uniform one is" if value is None else f"{value:.2f} times as long"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="a latency table of ofa-mbv3, measured on this machine")
    parser.add_argument("--device", default="cpu-1t", help="to profile and to time on")
    parser.add_argument("--budgets-ms", type=float, nargs="+")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
