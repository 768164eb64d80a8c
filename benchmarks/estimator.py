"""Ranking quality of estimators against validation passes spent: the paper's Figure 3 on a small task.

    deploynas train --space fashion --data fashion-mini --out runs/fashion
    python benchmarks/estimator.py --supernet runs/fashion

Every way sees the same supernet, images and unseen networks. Passes are kept in the run folder, so a second
run, or a longer one, only measures what is missing. On full Fashion-MNIST, with what `pooled` needs alone:

    deploynas train --space fashion --data fashion-mnist --out runs/full --set w_h.epochs=2 --set w_star.epochs=7
    python benchmarks/estimator.py --supernet runs/full --only-pooled --name estimator-full
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deploynas.accuracy.contributions import grouped
from deploynas.accuracy.estimation import EstimationSettings, contributions_of, learn
from deploynas.accuracy.registry import ESTIMANDS, SCORES
from deploynas.accuracy.samples import Pass, Samples, means
from deploynas.accuracy.shrinkage import shrunk
from deploynas.accuracy.validation import kendall, mean_error, noise_ceiling, spearman
from deploynas.pipeline.supernet import open_supernet
from deploynas.report.charts import Line, line_chart
from deploynas.space.coefficients import Estimator

POOLED = (1, 2, 3, 4, 5, 6, 8, 16, 32, 64)
SINGLE_PATH = (8, 16, 32, 64)
NETWORKS = (25, 50, 100, 200)
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    way: str
    estimand: str
    score: str
    passes: int
    kendall_tau: float
    spearman: float
    mean_error: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--supernet", type=Path, default=Path("runs/fashion"))
    parser.add_argument("--unseen", type=int, default=200)
    parser.add_argument("--name", default="estimator", help="of the files in benchmarks/results")
    parser.add_argument("--only-pooled", action="store_true", help="for a large validation set")
    arguments = parser.parse_args()
    start = time.monotonic()
    opened = open_supernet(arguments.supernet)
    samples = Samples(opened.space, opened.one_shot, opened.samples_folder())
    unseen = [samples.get("unseen", i) for i in range(arguments.unseen)]
    rows = [row(*found, unseen) for found in estimators(samples, arguments.only_pooled)]
    ceiling = noise_ceiling(unseen, np.random.default_rng(0))
    measured = means(unseen, "accuracy")
    document = {
        "supernet": opened.identity,
        "images": samples.measure.images,
        "unseen_networks": len(unseen),
        "measured_std": float(measured.std(ddof=1)),
        "noise_ceiling": ceiling.model_dump(),
        "seconds": round(time.monotonic() - start, 1),
        "rows": [asdict(r) for r in rows],
        "per_decision_passes": 1 + len(samples.space.decisions),
        "pooled_passes_for_per_decision_tau": pooled_passes_for_per_decision_tau(rows),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(document, indent=1) + "\n")
    (RESULTS / f"{arguments.name}.svg").write_text(chart(rows, ceiling.kendall_tau))
    show(document, rows)


def estimators(samples: Samples, only_pooled: bool) -> Iterator[tuple[str, str, str, int, Estimator]]:
    """(way, estimand, score, passes, estimator), every one that is compared."""
    image = [samples.get("image", i) for i in range(POOLED[-1])]
    for estimand in ESTIMANDS:
        for score in SCORES:
            for n in POOLED:
                found = contributions_of(
                    samples, EstimationSettings("contributions", estimand=estimand, score=score), image[:n]
                )
                yield "pooled", estimand, score, n, shrunk(found, estimand).estimator()
                yield "pooled, not shrunk", estimand, score, n, found.estimator()
    if only_pooled:
        return
    batch = [samples.get("batch", i) for i in range(SINGLE_PATH[-1])]
    for estimand in ESTIMANDS:
        for score in SCORES:
            for n in SINGLE_PATH:
                plan = EstimationSettings("contributions", sampling="single-path", estimand=estimand, score=score)
                yield "single-path", estimand, score, n, contributions_of(samples, plan, batch[:n]).estimator()
    for n in POOLED:
        plain = grouped(samples.space, image[:n], "accuracy", "projection")
        yield "pooled, no image effects", "projection", "accuracy", n, plain.estimator()
    networks = [samples.get("network", i) for i in range(NETWORKS[-1])]
    for method in ("bilinear", "coupled", "quadratic", "mlp"):
        for score in SCORES:
            for n in NETWORKS:
                learned = learn(samples.space, networks[:n], EstimationSettings(method=method, score=score))
                yield f"learned {method}", "", score, n, learned
    length = 1 + len(samples.space.decisions)
    passes = [samples.get("decision-paper", i) for i in range(length)]
    for score in SCORES:
        plan = EstimationSettings("contributions", sampling="per-decision", estimand="paper", score=score)
        yield "per-decision", "paper", score, length, contributions_of(samples, plan, passes).estimator()


def row(way: str, estimand: str, score: str, passes: int, estimator: Estimator, unseen: list[Pass]) -> Row:
    measured = means(unseen, "accuracy")
    networks = estimator.space.architectures(np.stack([p.paths[0] for p in unseen]))
    predicted = np.array([estimator.predict(network) for network in networks])
    tau, rho = kendall(predicted, measured), spearman(predicted, measured)
    return Row(way, estimand, score, passes, tau or 0.0, rho or 0.0, mean_error(predicted, measured))


def pooled_passes_for_per_decision_tau(rows: list[Row]) -> dict[str, int | None]:
    """For every way, estimand and score: the fewest passes with which it ranks as well as the paper's way."""
    found = {}
    for goal in (r for r in rows if r.way == "per-decision"):
        for way in ("pooled", "pooled, not shrunk"):
            for estimand in ESTIMANDS:
                same = [r for r in rows if (r.way, r.estimand, r.score) == (way, estimand, goal.score)]
                enough = [r.passes for r in same if r.kendall_tau >= goal.kendall_tau]
                found[f"{way}, {estimand}, {goal.score}"] = min(enough, default=None)
    return found


def chart(rows: list[Row], ceiling: float | None) -> str:
    """Accuracy as the score; the projection, except for the paper's own way."""
    lines = []
    for way in dict.fromkeys(r.way for r in rows):
        shown = ("", "paper" if way == "per-decision" else "projection")
        of_way = [r for r in rows if r.way == way and r.score == "accuracy" and r.estimand in shown]
        lines.append(Line(way, tuple(r.passes for r in of_way), tuple(r.kendall_tau for r in of_way)))
    level = ("two halves of the images", ceiling) if ceiling is not None else None
    return line_chart("Ranking of unseen networks", "Kendall tau", "validation passes", lines, level)


def show(document: dict, rows: list[Row]) -> None:
    ceiling = document["noise_ceiling"]
    print(
        f"{document['unseen_networks']} unseen networks on {document['images']} images, std of their accuracies "
        f"{100 * document['measured_std']:.2f} points; two halves of the images agree to tau "
        f"{ceiling['kendall_tau']:.3f}, Spearman {ceiling['spearman']:.3f}\n"
    )
    print("| way | estimand | score | passes | Kendall tau | Spearman | mean error (points) |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        numbers = f"{r.passes} | {r.kendall_tau:.3f} | {r.spearman:.3f} | {100 * r.mean_error:.2f}"
        print(f"| {r.way} | {r.estimand} | {r.score} | {numbers} |")
    for name, passes in document["pooled_passes_for_per_decision_tau"].items():
        print(f"\n{name}: as good as per-decision's {document['per_decision_passes']} with {passes} passes")
    print(f"\n{document['seconds']} s")


if __name__ == "__main__":
    main()
