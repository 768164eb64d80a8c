"""Whether it pays to let what decisions are worth differ between input sizes: the indexed estimator with and without.

    OMP_NUM_THREADS=1 python benchmarks/size_deviations.py --supernet RUN [--passes 8 16 32] [--unseen 100]

RUN is a trained supernet whose space leaves the input size open. All fits read the same passes. They are judged on
networks that had no part in them and, in four parts, by the log-likelihood of the answers of images left out. Prints
Markdown tables and writes `benchmarks/results/size-deviations.json`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.indexed_fit import fit_indexed_samples
from deploynas.accuracy.samples import Pass, Samples, Scores, means
from deploynas.accuracy.validation import kendall, noise_ceiling
from deploynas.errors import InputError
from deploynas.files import now, write_json
from deploynas.pipeline.supernet import open_supernet
from deploynas.space import Space

RESULTS = Path(__file__).parent / "results" / "size-deviations.json"
WAYS: dict[str, bool | None] = {"one worth at all sizes": False, "deviating": True, "as observed": None}
PARTS = 4  # of the images


@dataclass(frozen=True)
class Judged:
    way: str
    passes: int
    form: str
    by_size: bool
    kendall_tau: float
    error_points: float
    error_points_by_size: list[float]
    fit_seconds: float  # of CPU


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--supernet", type=Path, required=True, metavar="RUN")
    parser.add_argument("--passes", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--unseen", type=int, default=100)
    arguments = parser.parse_args()
    opened = open_supernet(arguments.supernet)
    if not opened.space.sizes:
        raise InputError(f"space `{opened.space.name}` has one input size")
    samples = Samples(opened.space, opened.one_shot, opened.samples_folder())
    unseen = [samples.get("unseen", i) for i in range(arguments.unseen)]
    taken = [samples.get("image", i) for i in range(max(arguments.passes))]
    ceiling, spread = noise_ceiling(unseen, np.random.default_rng(0)).kendall_tau, means(unseen, "accuracy").std(ddof=1)
    print(f"sizes {opened.space.sizes}; {len(unseen)} unseen networks differ by {100 * spread:.2f} points (std);")
    print(f"two halves of the {samples.measure.images} images agree to tau {ceiling:.3f}\n")
    print("| passes | contributions | form | tau | error, points | by size | fit, CPU s |")
    print("|---:|---|---|---:|---:|---|---:|")
    rows = [judge(opened.space, taken[:n], unseen, way) for n in arguments.passes for way in WAYS]
    gains = {n: likelihood_gain(opened.space, taken[:n]) for n in arguments.passes}
    for n, gain in gains.items():
        error = gain.std(ddof=1) / len(gain) ** 0.5
        print(f"{n} passes: log-likelihood per image left out, deviating minus not: {gain.mean():+.5f} ± {error:.5f}")
    document = {
        "created": now(),
        "supernet": opened.identity,
        "sizes": opened.space.sizes,
        "images": samples.measure.images,
        "halves_tau": ceiling,
        "measured_std_points": 100 * float(spread),
        "rows": [asdict(row) for row in rows],
        "log_likelihood_gain": {
            n: {"mean": float(gain.mean()), "se": float(gain.std(ddof=1)) / len(gain) ** 0.5}
            for n, gain in gains.items()
        },
    }
    write_json(RESULTS, document)


def judge(space: Space, taken: Sequence[Pass], unseen: Sequence[Pass], way: str) -> Judged:
    start = time.process_time()
    estimator = fit_indexed_samples(space, taken, by_size=WAYS[way])
    seconds = time.process_time() - start
    rows, measured = np.stack([p.paths[0] for p in unseen]), means(unseen, "accuracy")
    predicted = estimator.predict_rows(rows)
    errors = 100 * np.abs(predicted - measured)
    by_size = [float(errors[rows[:, -1] == i].mean()) for i in range(len(space.sizes))]
    about = estimator.provenance
    tau = kendall(predicted, measured) or 0.0
    row = Judged(way, len(taken), about["form"], about["by_size"], tau, float(errors.mean()), by_size, seconds)
    form = row.form + (", deviating" if row.by_size and WAYS[way] is None else "")
    sizes = ", ".join(f"{error:.2f}" for error in by_size)
    print(
        f"| {len(taken)} | {way} | {form} | {tau:.3f} | {row.error_points:.3f} | {sizes} | {seconds:.1f} |", flush=True
    )
    return row


def likelihood_gain(space: Space, taken: Sequence[Pass]) -> np.ndarray:
    """Per image, by fits to the others."""
    images = len(taken[0].scores.right)
    part = np.random.default_rng(0).permutation(images) % PARTS
    gain = np.zeros(images)
    for own in range(PARTS):
        inside, outside = ([_some(p, where) for p in taken] for where in (part != own, part == own))
        deviating, without = (fit_indexed_samples(space, inside, by_size=by_size) for by_size in (True, False))
        gain[part == own] = log_likelihood(deviating, outside) - log_likelihood(without, outside)
    return gain


def _some(whole: Pass, images: np.ndarray) -> Pass:
    scores = whole.scores
    return Pass(whole.paths[images], Scores(scores.right[images], scores.log_likelihood[images]))


def log_likelihood(estimator: IndexedEstimator, passes: Sequence[Pass]) -> np.ndarray:
    """Of each image's answers in all passes, by the accuracies of the networks that it took."""
    found = np.zeros(len(passes[0].scores.right))
    for one in passes:
        chance = estimator.predict_rows(one.paths)
        found += np.log(np.where(one.scores.right, chance, 1 - chance))
    return found


if __name__ == "__main__":
    main()
