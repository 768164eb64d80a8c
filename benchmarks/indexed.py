"""Estimators compared: sums, pairs, perceptron, and indices behind an increasing link.

    OMP_NUM_THREADS=1 python benchmarks/indexed.py [--splits 5] [--networks 100 300 900] [--supernet RUN ...]

From measured networks: accuracies are those of Once-for-all's sub-networks on ImageNet (`benchmarks/data`, see its
NOTICE). Every split draws the networks to learn from at random and judges on all the others. The number of units and
the priors of the link were set while looking at other splits of the same networks. The frontier is that of the space's
MACs.

From one-shot samples of every trained supernet that is named: passes in which every image takes a path of its own (for
the learned forms, as many whole networks), judged on networks that had no part in it. Prints Markdown tables and writes
`benchmarks/results/indexed.json`; `--networks` without numbers leaves the first part as it is stored.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed
from deploynas.accuracy.learned import MIN_NETWORKS, fit_bilinear, fit_quadratic
from deploynas.accuracy.mlp import fit_mlp
from deploynas.accuracy.results_table import ResultsTable
from deploynas.accuracy.validation import kendall, mean_error, spearman
from deploynas.files import now, write_json
from deploynas.search.frontier import problem_frontier
from deploynas.search.problem import Problem, resource_cost
from deploynas.space import Architecture, Space
from deploynas.space.coefficients import Estimator

if TYPE_CHECKING:
    from deploynas.accuracy.samples import Pass, Samples

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
    parser.add_argument("--networks", type=int, nargs="*", default=[100, 300, 900])
    parser.add_argument("--supernet", type=Path, action="append", default=[], metavar="RUN")
    parser.add_argument("--passes", type=int, nargs="+", default=[4, 16, 64], help="of a supernet")
    parser.add_argument("--unseen", type=int, default=200, help="networks of a supernet to judge on")
    arguments = parser.parse_args()
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.networks:
        document |= from_networks(arguments.networks, arguments.splits)
    for run in arguments.supernet:
        found = from_samples(run, arguments.passes, arguments.unseen)
        document["one_shot"] = {**document.get("one_shot", {}), found["data"]: found}
    write_json(RESULTS, document)


def from_networks(counts: list[int], splits: int) -> dict[str, object]:
    space = Space.load("ofa-mbv3")
    architectures, accuracies = read(space)
    load = os.getloadavg()[0]
    rows = []
    for count in counts:
        for split in range(splits):
            order = np.random.default_rng(1000 + split).permutation(len(accuracies))
            for form in FORMS:
                rows.append(judge(space, architectures, accuracies, form, split, np.split(order, [count])))
        for line in table([row for row in rows if row.networks == count]):
            print(line, flush=True)
    return {"created": now(), "load_at_start": load, "rows": [asdict(row) for row in rows]}


@dataclass(frozen=True)
class Sampled:
    """One fit to passes of a supernet, judged on whole networks; errors in points of accuracy."""

    form: str
    passes: int
    kendall_tau: float
    spearman: float
    error_points: float
    error_points_top_quarter: float
    picked: str | None
    fit_seconds: float  # of CPU
    frontier_seconds: float | None
    frontier_networks: int | None


def from_samples(run: Path, counts: list[int], unseen_networks: int) -> dict:
    from deploynas.accuracy.samples import Samples, means
    from deploynas.accuracy.validation import noise_ceiling
    from deploynas.pipeline.supernet import open_supernet

    opened = open_supernet(run)
    samples = Samples(opened.space, opened.one_shot, opened.samples_folder())
    unseen = [samples.get("unseen", i) for i in range(unseen_networks)]
    measured = means(unseen, "accuracy")
    ceiling = noise_ceiling(unseen, np.random.default_rng(0))
    rows = [judge_samples(samples, unseen, form, passes) for passes in counts for form in sampled_forms(passes)]
    print(f"\n{opened.data.name}: {len(unseen)} unseen networks, standard deviation {100 * measured.std():.2f} points;")
    print(f"two halves of the {samples.measure.images} images agree to tau {ceiling.kendall_tau:.3f}\n")
    print("| form | passes | tau | Spearman | error, points | top quarter | fit, CPU s | frontier, CPU s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        frontier = "none" if row.frontier_seconds is None else f"{row.frontier_seconds:.3f}"
        print(
            f"| {row.form}{f': {row.picked}' if row.picked else ''} | {row.passes} | {row.kendall_tau:.3f} "
            f"| {row.spearman:.3f} | {row.error_points:.2f} | {row.error_points_top_quarter:.2f} "
            f"| {row.fit_seconds:.1f} | {frontier} |",
            flush=True,
        )
    return {
        "created": now(),
        "data": opened.data.name,
        "supernet": opened.identity,
        "images": samples.measure.images,
        "measured_std_points": 100 * float(measured.std(ddof=1)),
        "halves": ceiling.model_dump(),
        "rows": [asdict(row) for row in rows],
    }


def sampled_forms(passes: int) -> list[str]:
    learned = ["bilinear (eq. 8)", "quadratic (eq. 9)", "MLP"] if passes >= MIN_NETWORKS else []
    return ["additive (eq. 3), shrunk", *learned, "one index", "two indices", "indexed, form picked"]


def judge_samples(samples: Samples, unseen: list[Pass], form: str, passes: int) -> Sampled:
    from deploynas.accuracy.estimation import EstimationSettings, contributions_of
    from deploynas.accuracy.indexed_fit import fit_indexed_samples
    from deploynas.accuracy.samples import means
    from deploynas.accuracy.shrinkage import shrunk

    space, indexed = samples.space, {"one index": 1, "two indices": 2, "indexed, form picked": None}
    of_images = form in indexed or form.startswith("additive")
    taken = [samples.get("image" if of_images else "network", i) for i in range(passes)]
    start = time.process_time()
    if form in indexed:
        estimator: Estimator = fit_indexed_samples(space, taken, indices=indexed[form])  # type: ignore[arg-type]
    elif of_images:
        found = contributions_of(samples, EstimationSettings("contributions"), taken)
        estimator = shrunk(found, "projection").estimator()
    else:
        seen = space.architectures(np.stack([p.paths[0] for p in taken]))
        estimator = FORMS[form](space, seen, means(taken, "accuracy"))
    fit_seconds = time.process_time() - start
    measured = means(unseen, "accuracy")
    networks = space.architectures(np.stack([p.paths[0] for p in unseen]))
    predicted = np.array([estimator.predict(network) for network in networks])
    top = measured >= np.quantile(measured, 0.75)
    frontier_seconds, count = time_frontier(space, estimator)
    return Sampled(
        form,
        passes,
        kendall(predicted, measured) or 0.0,
        spearman(predicted, measured) or 0.0,
        100 * mean_error(predicted, measured),
        100 * mean_error(predicted[top], measured[top]),
        estimator.provenance["form"] if form == "indexed, form picked" else None,  # type: ignore[attr-defined]
        fit_seconds,
        frontier_seconds,
        count,
    )


def read(space: Space) -> tuple[list[Architecture], np.ndarray]:
    table = ResultsTable.read(DATA, space)
    return list(table.architectures), table.accuracies


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
