"""Time and memory of learned fits in the `imagenet` space: 255 variables, 5,000 networks.

    python benchmarks/learned_fit.py [--networks 5000]

Accuracies are a planted full quadratic form with noise. Prints a Markdown table and writes
`benchmarks/results/learned_fit.json`.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deploynas.accuracy.learned import fit_bilinear, fit_quadratic
from deploynas.accuracy.mlp import fit_mlp
from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.files import now, write_json
from deploynas.space import Space

RESULTS = Path(__file__).parent / "results" / "learned_fit.json"
NOISE, UNSEEN = 0.002, 500


@dataclass(frozen=True)
class Row:
    form: str
    seconds: float
    peak_gib: float  # of the process so far; forms are fitted from small to large
    correlation: float  # with the noiseless accuracies of unseen networks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", type=int, default=5000)
    networks = parser.parse_args().networks
    space, rng = Space.load("imagenet"), np.random.default_rng(0)
    size = len(space.decisions)
    pairs = np.triu(rng.normal(0, 0.0003, (size, size)), 1)
    planted = QuadraticEstimator.from_arrays(space, 0.7, rng.normal(0, 0.002, size), pairs)
    seen, unseen = ([space.sample(rng) for _ in range(n)] for n in (networks, UNSEEN))
    y = np.array([planted.predict(a) for a in seen]) + rng.normal(0, NOISE, networks)
    truth = [planted.predict(a) for a in unseen]
    forms = {
        "separable": lambda: fit_bilinear(space, seen, y),
        "MLP": lambda: fit_mlp(space, seen, y),
        "bilinear": lambda: fit_bilinear(space, seen, y, couple_stages=True),
        "quadratic": lambda: fit_quadratic(space, seen, y),
    }
    rows = []
    for form, fit in forms.items():
        start = time.perf_counter()
        estimator = fit()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        correlation = float(np.corrcoef([estimator.predict(a) for a in unseen], truth)[0, 1])
        rows.append(Row(form, seconds, peak, correlation))
    print("| form | time | peak memory so far | correlation on unseen networks |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.form} | {row.seconds:.1f} s | {row.peak_gib:.2f} GiB | {row.correlation:.3f} |")
    document = {"created": now(), "networks": networks, "variables": size, "rows": [asdict(row) for row in rows]}
    write_json(RESULTS, document)


if __name__ == "__main__":
    main()
