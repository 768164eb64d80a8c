"""Are expected accuracies right where the search goes? Networks of a run's frontier that no step has measured.

    python benchmarks/frontier_accuracy.py RUN [--device cpu-1t] [--networks 40]

For the estimator of `estimate` and for the refined one that the run's search used: networks of its own frontier,
spread over all latencies, none of which was measured before; expected against measured one-shot accuracy on the
validation images, batch norm recalibrated. Then 40 random networks, for comparison. Prints Markdown and writes
`benchmarks/results/frontier_accuracy.json`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.accuracy.validation import kendall
from deploynas.files import now, write_json
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.run_folder import RunFolder
from deploynas.pipeline.supernet import TrainedSupernet, open_supernet
from deploynas.search.frontier import frontier
from deploynas.search.result_file import SearchFile
from deploynas.space import Architecture

RESULT = Path(__file__).parent / "results" / "frontier_accuracy.json"


@dataclass(frozen=True)
class Checked:
    """Expected minus measured, in points."""

    estimator: str
    networks: str
    count: int
    mean_error: float
    mean_error_se: float
    rmse: float
    within_90: float | None
    mean_se: float | None  # that the estimator states
    kendall_tau: float | None
    expected: list[float]
    measured: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", default="cpu-1t")
    parser.add_argument("--networks", type=int, default=40)
    options = parser.parse_args()
    folder, supernet = RunFolder(options.run), open_supernet(options.run)
    files = folder.device(options.device)
    answer, table = SearchFile.load(files.search), LatencyTable.load(files.table)
    known = {
        supernet.space.architecture(network.choices) for made in answer.refinement for network in made.measured
    } | set(answer.architectures())
    rng = np.random.default_rng(1)
    random = [supernet.space.sample(rng) for _ in range(options.networks)]
    rows = []
    print("| estimator | networks | mean error, points | rmse | stated error | within 90 % | tau |")
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    for name, path in (("of `estimate`", folder.estimator), ("refined", Path(answer.estimator.path))):
        estimator = load_estimator(path)
        fresh = [point.architecture for point in frontier(supernet.space, estimator, table)]
        fresh = [network for network in fresh if network not in known]
        kept = np.unique(np.linspace(0, len(fresh) - 1, min(options.networks, len(fresh))).astype(int))
        for kind, networks in (("of its frontier", [fresh[i] for i in kept]), ("random", random)):
            rows.append(check(supernet, estimator, name, kind, networks))
            show(rows[-1])
    write_json(RESULT, {"created": now(), "data": supernet.data.name, "rows": [asdict(row) for row in rows]})


def check(
    supernet: TrainedSupernet, estimator: StoredEstimator, name: str, kind: str, networks: list[Architecture]
) -> Checked:
    expected = [estimator.expect(network) for network in networks]
    values = np.array([one.accuracy for one in expected])
    measured = np.array([supernet.accuracy_alone(network)[0] for network in networks])
    errors = values - measured
    stated = [one.se for one in expected if one.se is not None]
    intervals = [one.interval() for one in expected]
    held = [low <= y <= high for interval, y in zip(intervals, measured, strict=True) if interval
            for low, high in [interval]]  # fmt: skip
    return Checked(
        name,
        kind,
        len(networks),
        100 * float(errors.mean()),
        100 * float(errors.std(ddof=1)) / len(errors) ** 0.5,
        100 * float((errors**2).mean()) ** 0.5,
        float(np.mean(held)) if held else None,
        100 * float(np.mean(stated)) if stated else None,
        kendall(values, measured),
        values.tolist(),
        measured.tolist(),
    )


def show(row: Checked) -> None:
    held = "" if row.within_90 is None else f"{row.within_90:.2f}"
    stated = "" if row.mean_se is None else f"{row.mean_se:.2f}"
    tau = "" if row.kendall_tau is None else f"{row.kendall_tau:.2f}"
    print(
        f"| {row.estimator} | {row.count} {row.networks} | {row.mean_error:+.2f} ± {row.mean_error_se:.2f} "
        f"| {row.rmse:.2f} | {stated} | {held} | {tau} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
