"""Estimators with terms across stages: how far the integer form proves its answer, beside evolution.

    python benchmarks/coupled_estimators.py [--time-limit-s 30]

The `imagenet` space, one table, one budget. The linear part is that of an instance of
`benchmarks/solvers.py`, the pair terms are random. Prints a Markdown table and writes
`benchmarks/results/coupled_estimators.json`.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from solvers import budgets, instance, timed

from deploynas.accuracy.quadratic import QuadraticEstimator
from deploynas.files import now, write_json
from deploynas.search.evolution import Evolution
from deploynas.search.milp import Milp
from deploynas.search.problem import Limit, Problem
from deploynas.space import Decisions, Space

RESULTS = Path(__file__).parent / "results" / "coupled_estimators.json"


@dataclass(frozen=True)
class Row:
    pairs: str
    products: int
    milp_s: float
    proven: bool
    gap_points: float | None
    evolution_s: float
    evolution_behind_points: float  # what evolution found is so much below what the integer form found


def matrices(decisions: Decisions, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Pair terms of three kinds over the encoding."""
    size, alphas = len(decisions), decisions.alphas
    sparse = np.zeros((size, size))
    sparse[tuple(rng.integers(size, size=(2, 200)))] = rng.normal(0, 0.003, 200)
    bilinear = np.zeros((size, size))
    bilinear[:alphas, alphas:] = rng.normal(0, 0.0005, (alphas, size - alphas))
    full = np.triu(rng.normal(0, 0.0003, (size, size)), 1)
    return {"200 at random": sparse, "every block with every depth": bilinear, "every pair": full}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--time-limit-s", type=float, default=30.0)
    options = parser.parse_args()
    space = Space.load("imagenet")
    made = instance(space, 0, devices=1)
    budget = list(budgets(made.points))[2]
    rows = made.estimator.block, made.estimator.depth
    linear = np.concatenate([np.ravel(part) for coefficients in rows for part in coefficients])
    results = []
    for name, matrix in matrices(space.decisions, np.random.default_rng(0)).items():
        estimator = QuadraticEstimator.from_arrays(space, 0.6, linear, matrix)
        problem = Problem.build(space, estimator, [Limit(made.tables[0], budget)])
        milp_s, (milp,) = timed(lambda p=problem: Milp(time_limit_s=options.time_limit_s).solve(p))
        evolution_s, (evolved,) = timed(lambda p=problem: Evolution().solve(p))
        gap = None if milp.gap is None else 100 * milp.gap
        behind = 100 * (milp.score - evolved.score)
        results.append(Row(name, len(estimator.value), milp_s, milp.optimal, gap, evolution_s, behind))
    print("| pair terms | products | milp | proven | gap (points) | evolution | evolution behind milp |")
    print("|---|---|---|---|---|---|---|")
    for r in results:
        print(
            f"| {r.pairs} | {r.products} | {r.milp_s:.1f} s | {'yes' if r.proven else 'no'} "
            f"| {r.gap_points:.2f} | {r.evolution_s:.1f} s | {r.evolution_behind_points:.2f} points |"
        )
    document = {"created": now(), "time_limit_s": options.time_limit_s, "rows": [asdict(r) for r in results]}
    write_json(RESULTS, document)


if __name__ == "__main__":
    main()
