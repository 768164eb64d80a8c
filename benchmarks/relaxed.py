"""Relaxed searches (RARTS, DARTS, MiLeNAS) beside BCFW and the exact search: same supernet, same table, same budgets.

    deploynas run --space fashion --data fashion-mini
    python benchmarks/relaxed.py runs/fashion --part search finetune
    python benchmarks/relaxed.py runs/fashion --part latency          # on a machine that does nothing else

`search`: what each way finds at each budget, with its CPU seconds. BCFW and exact share an estimator, measured anew for
this; a relaxed search at two budgets shares the gammas that both try, and each budget is told the time of all it needs.
`finetune`: every network from the weights it inherits, several seeds, a short schedule; random networks of the exact
one's predicted latency beside them, one seed each. `latency`: all networks, measured together on the table's device.
Prints Markdown and writes `benchmarks/results/relaxed.json`, part by part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deploynas import search
from deploynas.accuracy.estimation import EstimationSettings
from deploynas.accuracy.estimator_file import load_estimator
from deploynas.files import now, write_json
from deploynas.latency.hardware import hardware, versions
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.estimate import KeptPasses, estimate_supernet
from deploynas.pipeline.finetune import FineTuneOptions, fine_tuning_task
from deploynas.pipeline.relaxed import Relaxed, Start
from deploynas.pipeline.rivals import random_networks
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.supernet import open_supernet
from deploynas.pipeline.within import Within
from deploynas.search.problem import Limit
from deploynas.space import Architecture
from deploynas.training.finetune import finetune
from deploynas.training.recipe import Recipe
from deploynas.training.relaxed import RelaxedSettings
from deploynas.training.relaxed_updates import RULES, updates_for

RESULT = Path(__file__).parent / "results" / "relaxed.json"
RANDOM = "random"


class Watch:
    """CPU seconds of every gamma, from what a search reports; a gamma that is read from disk reports nothing."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.process_time()

    def __call__(self, fraction: float, what: str) -> None:
        here = time.process_time()
        self.seconds[what.split(",")[0]] += here - self._last
        self._last = here

    def of(self, gammas: list[float]) -> float:
        return sum(self.seconds[f"gamma {gamma:.3g}"] for gamma in gammas)

    def restart(self) -> None:
        self._last = time.process_time()


def searches(run: Path, table: LatencyTable, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_by_estimator(run, table, args.budgets, Path(folder)))
        start = replace(Start.trained(run), run=RunFolder(Path(folder)))
        for rule in RULES:
            watch = Watch()
            settings = RelaxedSettings(updates_for(rule), epochs=args.search_epochs)
            for budget in args.budgets:
                watch.restart()
                rows.append(
                    _relaxed_row(Relaxed(start, Within((), [Limit(table, budget)]), settings, args.gammas), watch)
                )
                print(json.dumps(rows[-1])[:300], flush=True)
    rng = np.random.default_rng(0)
    for exact in [row for row in rows if row["way"] == "exact"]:
        like = table.space.architecture(exact["choices"])
        for rival in random_networks(table, like, args.random, rng):
            rows.append(_row(RANDOM, exact["budget_ms"], rival, table, 0.0))
    return {"search_epochs": args.search_epochs, "gammas": args.gammas, "rows": rows}


def _by_estimator(run: Path, table: LatencyTable, budgets: list[float], folder: Path) -> Any:
    started, supernet = time.process_time(), open_supernet(run)
    estimate_supernet(supernet, EstimationSettings(), folder / "estimator.json", KeptPasses(folder / "samples"))
    estimator, estimated = load_estimator(folder / "estimator.json"), time.process_time() - started
    print(f"estimate: {estimated:.1f} s", flush=True)
    for way in ("exact", "bcfw"):
        for budget in budgets:
            started = time.process_time()
            found = search(table.space, estimator, [Limit(table, budget)], way)
            own = time.process_time() - started
            yield {**_row(way, budget, found.architecture, table, own + estimated), "own_cpu_s": own}


def _relaxed_row(relaxed: Relaxed, watch: Watch) -> dict[str, Any]:
    outcome = relaxed.search(watch)
    (limit,) = relaxed.within.limits
    started, table = time.process_time(), limit.of
    assert isinstance(table, LatencyTable)
    found = search(table.space, outcome.chosen.estimator, [limit]).architecture
    record, repair = outcome.record(found), time.process_time() - started
    (taken,) = [one for one in record.tried if one.gamma == record.gamma]
    seconds = watch.of([one.gamma for one in record.tried]) + repair
    return {
        **_row(relaxed.settings.updates.rule, limit.budget, found, table, seconds),
        "gamma": record.gamma,
        "gammas_tried": [one.gamma for one in record.tried],
        "steps": record.steps,
        "expected_ms": taken.expected[0].expected,
        "before_repair_ms": taken.expected[0].most_probable,
        "decisions_repaired": len(record.repaired),
    }


def _row(way: str, budget: float, found: Architecture, table: LatencyTable, seconds: float) -> dict[str, Any]:
    return {
        "way": way,
        "budget_ms": budget,
        "architecture": str(found),
        "choices": [list(choice) for choice in found.choices],
        "predicted_ms": table.predict(found),
        "cpu_s": seconds,
    }


def fine_tune(run: Path, document: dict[str, Any], args: argparse.Namespace) -> None:
    """Every network once for each seed, however many ways found it; random ones with one seed."""
    supernet, done = open_supernet(run), dict[tuple[str, int], tuple[float, float]]()
    started = time.process_time()
    for row in document["rows"]:
        architecture = supernet.space.architecture(row["choices"])
        seeds = 1 if row["way"] == RANDOM else args.seeds
        for seed in range(seeds):
            key = str(architecture), seed
            if key not in done:
                changes = [f"seed={seed}", f"finetune.epochs={args.finetune_epochs}"]
                recipe = Recipe.for_space(supernet.space.name, None, changes)
                with tempfile.TemporaryDirectory() as folder:
                    made = finetune(fine_tuning_task(supernet, architecture, FineTuneOptions(recipe)), Path(folder))
                assert made.test_accuracy is not None and made.inherited_accuracy is not None
                done[key] = made.test_accuracy, made.inherited_accuracy
        row["test_accuracies"] = [done[str(architecture), seed][0] for seed in range(seeds)]
        row["one_shot"] = done[str(architecture), 0][1]
        print(row["way"], row["budget_ms"], row["one_shot"], row["test_accuracies"], flush=True)
    document |= {"finetune_epochs": args.finetune_epochs, "finetune_cpu_s": time.process_time() - started}


def time_networks(table: LatencyTable, document: dict[str, Any]) -> None:
    assert table.evidence is not None
    networks = {row["architecture"]: table.space.architecture(row["choices"]) for row in document["rows"]}
    device = table.evidence.device_here()
    timed = measure_networks(device, table.space, list(networks.values()), forms=table.forms)
    by_name = dict(zip(networks, timed, strict=True))
    for row in document["rows"]:
        measured = by_name[row["architecture"]]
        row["measured_ms"], row["measured_error"] = measured.latency_ms, measured.relative_error
    document["disturbance"] = float(np.median([one.disturbance for one in timed]))


def markdown(document: dict[str, Any]) -> str:
    lines = [
        "| budget | way | CPU | gammas | before repair | predicted | measured | one-shot | test accuracy |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for budget in dict.fromkeys(row["budget_ms"] for row in document["rows"]):
        here = [row for row in document["rows"] if row["budget_ms"] == budget]
        for way in dict.fromkeys(row["way"] for row in here):
            lines.append(_line(budget, way, [row for row in here if row["way"] == way]))
    return "\n".join(lines)


def _line(budget: float, way: str, rows: list[dict[str, Any]]) -> str:
    def mean(key: str, form: str) -> str:
        values = [row[key] for row in rows if row.get(key) is not None]
        return format(float(np.mean(values)), form) if values else ""

    accuracies = [accuracy for row in rows for accuracy in row.get("test_accuracies", [])]
    spread = f" ± {100 * np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else ""
    shown = f"{100 * np.mean(accuracies):.2f}{spread} %" if accuracies else ""
    tried = rows[0].get("gammas_tried")
    one_shot = f"{100 * np.mean([row['one_shot'] for row in rows]):.2f} %" if "one_shot" in rows[0] else ""
    cells = [
        f"{budget:g}",
        f"{way}, mean of {len(rows)}" if len(rows) > 1 else way,
        f"{rows[0]['cpu_s']:.0f} s" if way != RANDOM else "",
        str(len(tried)) if tried else "",
        mean("before_repair_ms", ".4f"),
        mean("predicted_ms", ".4f"),
        mean("measured_ms", ".4f"),
        one_shot,
        shown,
    ]
    return f"| {' | '.join(cells)} |"


def violations(document: dict[str, Any]) -> int:
    return sum(row["predicted_ms"] > row["budget_ms"] for row in document["rows"] if row["way"] != RANDOM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--part", nargs="+", choices=["search", "finetune", "latency"], default=["search", "finetune"])
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.011, 0.014, 0.02, 0.03], metavar="MS")
    parser.add_argument("--search-epochs", type=int, default=2)
    parser.add_argument("--gammas", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--random", type=int, default=3)
    parser.add_argument("--finetune-epochs", type=int, default=1)
    args = parser.parse_args()
    table = LatencyTable.load(RunFolder(args.run).device(args.device).table)
    document: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    if "search" in args.part:
        document = {"created": now(), "hardware": hardware().model_dump(), "versions": versions()}
        document |= searches(args.run, table, args)
        write_json(RESULT, document)
    if "finetune" in args.part:
        fine_tune(args.run, document, args)
        write_json(RESULT, document)
    if "latency" in args.part:
        time_networks(table, document)
        write_json(RESULT, document)
    document["violations"] = violations(document)
    write_json(RESULT, document)
    print(markdown(document))
    print(f"networks over their budget: {document['violations']}")


if __name__ == "__main__":
    main()
