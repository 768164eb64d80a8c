"""Estimators learned from measured networks: sums, pairs, perceptron, and indices behind an increasing link.

    OMP_NUM_THREADS=1 python benchmarks/indexed.py [--splits 5] [--networks 100 300 900]

Accuracies are those of Once-for-all's sub-networks on ImageNet (`benchmarks/data`, see its NOTICE). Every split draws
the networks to learn from at random and judges on all the others. The number of units and the priors of the link were
set while looking at other splits of the same networks. The frontier is that of the space's MACs. Prints Markdown
tables and writes `benchmarks/results/indexed.json`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed
from deploynas.accuracy.learned import fit_bilinear, fit_quadratic
from deploynas.accuracy.mlp import fit_mlp
from deploynas.accuracy.validation import kendall, mean_error, spearman
from deploynas.files import now, write_json
from deploynas.search.frontier import problem_frontier
from deploynas.search.problem import Problem, resource_cost
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Estimator

HERE = Path(__file__).parent
DATA, RESULTS = HERE / "data" / "ofa-mbv3-imagenet.csv", HERE / "results" / "indexed.json"

Fit = Callable[[Space, list[Architecture], np.ndarray], Estimator]
FORMS: dict[str, Fit] = {
    "additive (eq. 3)": fit_bilinear,
    "bilinear (eq. 8)": lambda space, seen, y: fit_bilinear(space, seen, y, couple_stages=True),
    "quadratic (eq. 9)": fit_quadratic,
    "MLP": fit_mlp,
    "one index": lambda space, seen, y: fit_indexed(space, seen, y, indices=1),
    "two indices": lambda space, seen, y: fit_indexed(space, seen, y, indices=2),
    "indexed, form picked": fit_indexed,
}


@dataclass(frozen=True)
class Judged:
    """One fit, judged on the networks that it has not seen; errors in points of accuracy."""

    form: str
    networks: int
    split: int
    kendall_tau: float
    spearman: float
    error_points: float
    error_points_top_quarter: float
    within_90: float | None  # share of the networks within the stated 90 % interval
    picked: str | None
    fit_seconds: float  # of CPU, so that whatever else runs on the machine counts little
    frontier_seconds: float | None  # None: none that is exact
    frontier_networks: int | None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--networks", type=int, nargs="+", default=[100, 300, 900])
    arguments = parser.parse_args()
    space = Space.load("ofa-mbv3")
    architectures, accuracies = read(space)
    load = os.getloadavg()[0]
    rows = []
    for count in arguments.networks:
        for split in range(arguments.splits):
            order = np.random.default_rng(1000 + split).permutation(len(accuracies))
            for form in FORMS:
                rows.append(judge(space, architectures, accuracies, form, split, np.split(order, [count])))
        for line in table([row for row in rows if row.networks == count]):
            print(line, flush=True)
    write_json(RESULTS, {"created": now(), "load_at_start": load, "rows": [asdict(row) for row in rows]})


def read(space: Space) -> tuple[list[Architecture], np.ndarray]:
    """Once-for-all's form into ours: a stage's configurations are its ratios, each with its kernels."""
    architectures, accuracies = [], []
    with DATA.open() as file:
        for line in csv.DictReader(file):
            given = json.loads(line["architecture"])
            choices = []
            for s, depth in enumerate(given["d"]):
                configs = {(c.ratio, c.kernel): i for i, c in enumerate(space.stages[s].configs)}
                blocks = range(4 * s, 4 * s + depth)
                choices.append([configs[given["e"][b], given["ks"][b]] for b in blocks])
            architectures.append(space.architecture(choices))
            accuracies.append(float(line["top1_percent"]) / 100)
    return architectures, np.array(accuracies)


def judge(
    space: Space, architectures: list[Architecture], y: np.ndarray, form: str, split: int, parts: list[np.ndarray]
) -> Judged:
    seen, unseen = parts
    start = time.process_time()
    estimator = FORMS[form](space, [architectures[i] for i in seen], y[seen])
    fit_seconds = time.process_time() - start
    predicted, measured = np.array([estimator.predict(architectures[i]) for i in unseen]), y[unseen]
    top = measured >= np.quantile(measured, 0.75)
    errors = [estimator.predict_se(architectures[i]) for i in unseen]
    frontier_seconds, networks = time_frontier(space, estimator)
    tau, rho = kendall(predicted, measured), spearman(predicted, measured)
    assert tau is not None and rho is not None
    return Judged(
        form,
        len(seen),
        split,
        tau,
        rho,
        100 * mean_error(predicted, measured),
        100 * mean_error(predicted[top], measured[top]),
        None
        if None in errors
        else float(np.mean(np.abs(predicted - measured) < 1.645 * np.array(errors, dtype=float))),
        estimator.provenance["form"] if isinstance(estimator, IndexedEstimator) else None,
        fit_seconds,
        frontier_seconds,
        networks,
    )


def time_frontier(space: Space, estimator: Estimator) -> tuple[float | None, int | None]:
    if not isinstance(estimator, (BilinearEstimator, IndexedEstimator)):
        return None, None
    problem = Problem(space, estimator.objective(), (resource_cost(space, "macs"),))
    start = time.process_time()
    networks = len(problem_frontier(problem))
    return time.process_time() - start, networks


def table(rows: list[Judged]) -> list[str]:
    lines = [
        f"\n{rows[0].networks} networks, mean (standard deviation) of {1 + max(row.split for row in rows)} splits\n",
        "| form | tau | Spearman | error, points | error, top quarter | within 90 % | fit, CPU s | frontier, CPU s "
        "| proven |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for form in FORMS:
        own = [row for row in rows if row.form == form]

        def mean(name: str, digits: int, own: list[Judged] = own) -> str:
            values = [getattr(row, name) for row in own]
            if None in values:
                return "-"
            return f"{np.mean(values):.{digits}f} ({np.std(values):.{digits}f})"

        cells = [
            mean("kendall_tau", 3),
            mean("spearman", 3),
            mean("error_points", 3),
            mean("error_points_top_quarter", 3),
            mean("within_90", 2),
            mean("fit_seconds", 1),
            mean("frontier_seconds", 3),
            "no frontier" if own[0].frontier_seconds is None else "yes",
        ]
        picked = sorted({str(row.picked) for row in own}) if form == "indexed, form picked" else []
        lines.append(f"| {form}{': ' + ', '.join(picked) if picked else ''} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
