"""Is an estimator of ImageNet accuracies right about a search that it has seen nothing of?

    OMP_NUM_THREADS=1 python benchmarks/imagenet_estimator.py

The data (`benchmarks/data`, see its NOTICE) are logs of five searches. Each search in turn is left out whole: forms are
fitted to the networks that are not of it, and judged on those that are. A network of several logs is left out with each
of them. `picked` is what `deploynas estimate --from ... --group search` does with the other four logs, form and all.

Intervals are judged twice: with the lack of fit that the fit itself sees on networks it was fitted to, and with the one
that shows when the other four searches are left out in turn among themselves, which is what `estimate --from` states.
The best tenth are the networks of the left-out search with the highest predictions. Prints Markdown tables and writes
`benchmarks/results/imagenet_estimator.json`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from deploynas.accuracy.cross_validation import LeftOut, lack_of_fit_of, leave_out
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.indexed_fit import Form, fit_form
from deploynas.accuracy.lack_of_fit import scatter
from deploynas.accuracy.learned_forms import fit_learned
from deploynas.accuracy.results_estimation import ResultsSettings, estimate_from_table
from deploynas.accuracy.results_table import ResultsFormat, ResultsTable
from deploynas.accuracy.validation import kendall, mean_error
from deploynas.files import now, sha256_of, write_json
from deploynas.space import Space

HERE = Path(__file__).parent
DATA, RESULTS = HERE / "data" / "ofa-mbv3-imagenet.csv", HERE / "results" / "imagenet_estimator.json"
Z = 1.6449  # of a 90 % interval

Fit = Callable[[ResultsTable], StoredEstimator]


def indexed(form: Form) -> Fit:
    return lambda table: fit_form(table.space, table.architectures, table.accuracies, form)


def learned(method: str) -> Fit:
    return lambda table: fit_learned(method, table.space, table.architectures, table.accuracies)


FORMS: dict[str, Fit] = {
    "additive (eq. 3)": learned("bilinear"),
    "additive, shrunk": indexed("additive"),
    "coupled (eq. 8)": learned("coupled"),
    "quadratic (eq. 9)": learned("quadratic"),
    "MLP": learned("mlp"),
    "one index": indexed("one index"),
    "two indices": indexed("two indices"),
    "picked": lambda table: estimate_from_table(table, ResultsSettings()),
}


@dataclass(frozen=True)
class Judged:
    """One form, fitted without one search and judged on it; errors in points of accuracy."""

    form: str
    search: str
    networks: int
    measured_std_points: float
    kendall_tau: float
    error_points: float
    bias_points: float
    top_bias_points: float
    within_90_as_fitted: float  # with the standard errors that the fit states by itself
    within_90: float  # with the lack of fit of the other searches
    top_within_90: float
    picked: str | None
    seconds: float  # of CPU, for the fit


def main() -> None:
    table = ResultsTable.read(DATA, Space.load("ofa-mbv3"), ResultsFormat(group="search"))
    rows = []
    for search, mask in table.masks().items():
        own = [judge(form, table, search, mask) for form in FORMS]
        rows += own
        for line in per_search(own):
            print(line, flush=True)
    for line in in_short(rows):
        print(line)
    write_json(RESULTS, {"created": now(), "data_sha256": sha256_of(DATA), "rows": [asdict(row) for row in rows]})


def judge(form: str, table: ResultsTable, search: str, mask: np.ndarray) -> Judged:
    seen, unseen = part(table, ~mask), part(table, mask)
    start = time.process_time()
    estimator = FORMS[form](seen)
    seconds = time.process_time() - start
    networks, measured = unseen.architectures, unseen.accuracies
    predicted = np.array([estimator.predict(network) for network in networks])
    left_out = LeftOut(predicted, measured, scatter(estimator, networks))
    stated = np.array([estimator.predict_se(network) or 0.0 for network in networks])
    as_fitted = np.abs(left_out.errors) <= Z * stated
    # `picked` has looked at the other searches already, and states what it saw there
    inside = as_fitted if form == "picked" else left_out.within(lack_among(seen, FORMS[form]))
    return Judged(
        form,
        search,
        len(measured),
        100 * float(measured.std(ddof=1)),
        kendall(predicted, measured) or 0.0,
        100 * mean_error(predicted, measured),
        100 * float(left_out.errors.mean()),
        100 * float(left_out.errors[left_out.top].mean()),
        float(as_fitted.mean()),
        float(inside.mean()),
        float(inside[left_out.top].mean()),
        estimator.provenance.get("form") if form == "picked" else None,
        seconds,
    )


def part(table: ResultsTable, mask: np.ndarray) -> ResultsTable:
    networks = [(a, own) for a, own, inside in zip(table.architectures, table.groups, mask, strict=True) if inside]
    return replace(
        table,
        architectures=tuple(a for a, _ in networks),
        accuracies=table.accuracies[mask],
        groups=tuple(own for _, own in networks),
    )


def lack_among(table: ResultsTable, fit: Fit) -> float:
    """The lack of fit that shows when the searches of a table are left out in turn."""
    return lack_of_fit_of(leave_out(table, lambda mask: fit(part(table, mask)), list(table.masks().values())))


def per_search(rows: Sequence[Judged]) -> list[str]:
    first = rows[0]
    lines = [
        f"\n{first.search}: {first.networks} networks, standard deviation {first.measured_std_points:.2f} points\n",
        "| form | tau | error | bias | bias, best tenth | within 90 %, as fitted | within 90 % | the same, best tenth "
        "| fit, CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        name = f"{row.form}: {row.picked}" if row.picked else row.form
        lines.append(
            f"| {name} | {row.kendall_tau:.3f} | {row.error_points:.3f} | {row.bias_points:+.3f} "
            f"| {row.top_bias_points:+.3f} | {row.within_90_as_fitted:.2f} | {row.within_90:.2f} "
            f"| {row.top_within_90:.2f} | {row.seconds:.1f} |"
        )
    return lines


def in_short(rows: Sequence[Judged]) -> list[str]:
    searches = list(dict.fromkeys(row.search for row in rows))
    lines = [
        "\nKendall tau / mean error in points, by the search that was left out\n",
        f"| form | {' | '.join(searches)} | within 90 %, all |",
        f"|---|{'---:|' * (len(searches) + 1)}",
    ]
    for form in FORMS:
        own = [row for row in rows if row.form == form]
        cells = " | ".join(f"{row.kendall_tau:.3f} / {row.error_points:.3f}" for row in own)
        share = sum(row.within_90 * row.networks for row in own) / sum(row.networks for row in own)
        lines.append(f"| {form} | {cells} | {share:.2f} |")
    return lines


if __name__ == "__main__":
    main()
