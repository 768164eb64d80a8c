"""How often `explain` says something about a choice that is worth nothing, and how often it sees one that is not.

    OMP_NUM_THREADS=1 python benchmarks/insights.py

A made-up supernet whose effects are known: in every world some choices are worth something in some stages and exactly
nothing in others, or nothing anywhere. Each run draws new images and new paths, estimates, and looks at what may be
claimed. A claim is false if there is no such effect, or one of the other sign, or if a place is called the best that is
not; of all runs 5 % at most may hold any. Beside it, the rule as it was: the same test by the estimator's own
contributions and their standard errors.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from deploynas.accuracy.comparisons import comparisons_of
from deploynas.accuracy.estimation import EstimationSettings, estimate
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.insights import CHANCE, Claim, claims_of, insights_of
from deploynas.accuracy.samples import Samples, Scores
from deploynas.space import Space

RESULTS = Path(__file__).parent / "results"
FACTORS = {"expansion": 0.02, "kernel": 0.03, "se": 0.02}  # of a level against the next lower one
DEPTH = 0.04


@dataclass(frozen=True)
class World:
    """Where a choice is worth something: stages by number, from 0; an aspect that is not named is worth nothing."""

    name: str
    stages: dict[str, tuple[int, ...]]


WORLDS = (
    World("nothing anywhere", {}),
    World("nothing in stage 2", dict.fromkeys(("depth", *FACTORS), (0, 2))),
    World("kernel and depth, in stages 1 and 3 alone", {"kernel": (0, 2), "depth": (0, 2)}),
    World("all but squeeze-and-excitation, everywhere", dict.fromkeys(("depth", "expansion", "kernel"), (0, 1, 2))),
)


class Planted:
    """A `Measure`: images of differing difficulty and taste, and paths whose worth is the world's."""

    def __init__(self, space: Space, world: World, images: int, seed: int) -> None:
        self.decisions, self._images = space.decisions, images
        self.tables = [table - table.mean() for table in _tables(space, world)]
        self.rng = np.random.default_rng(seed)
        self.difficulty = self.rng.normal(scale=0.12, size=images)
        # what an image makes of every option: its own affair, nothing on average
        self.tastes = [self.rng.normal(scale=0.02, size=(images, size)) for size in self.decisions.sizes]

    @property
    def images(self) -> int:
        return self._images

    def __call__(self, paths: np.ndarray) -> Scores:
        paths = np.broadcast_to(paths, (self._images, paths.shape[1]))
        counts, everyone = self.decisions.counts(paths), np.arange(self._images)
        chance = 0.75 + self.difficulty
        for column, (table, taste) in enumerate(zip(self.tables, self.tastes, strict=True)):
            chance = chance + counts[:, column] * (table[paths[:, column]] + taste[everyone, paths[:, column]])
        right = self.rng.random(self._images) < chance
        noise = self.rng.normal(scale=0.05, size=self._images)
        return Scores(right, (chance + noise).astype(np.float32))


def _tables(space: Space, world: World) -> list[np.ndarray]:
    """What every option of every column is worth."""
    decisions, tables = space.decisions, []
    for g, group in enumerate(decisions.groups):
        worth = DEPTH if g in world.stages.get("depth", ()) else 0.0
        tables.append(worth * np.arange(len(group.depths)))
    for g, i in decisions.places:
        options = decisions.groups[g].choices[i].options
        table = np.zeros(len(options))
        for aspect, step in FACTORS.items():
            if g in world.stages.get(aspect, ()):
                levels = [dict(option.factors)[aspect] for option in options]
                table += step * np.array([sorted(set(levels)).index(level) for level in levels])
        tables.append(table)
    return tables


@dataclass(frozen=True)
class Row:
    world: str
    estimator: str
    tested_by: str
    runs: int
    false: int  # runs with any false claim
    false_largest: int  # of these, runs with a place called the best that is not
    power: dict[str, float]  # of effects of a size, the share that is claimed


Truth = dict[tuple[str, str, str], float]  # by aspect, change and place
Tests = dict[str, StoredEstimator]  # what claims are tested by, and the estimator that holds that and nothing else
Way = Callable[[Samples, int], Tests]


def truth_of(space: Space, world: World) -> Truth:
    values = np.concatenate([table - table.mean() for table in _tables(space, world)])
    return {c.key: round(float(c.weights @ values), 12) for c in comparisons_of(space.decisions)}


def is_false(claim: Claim, truth: Truth) -> tuple[bool, bool]:
    """Whether there is no such effect, or one of the other sign; whether it is called the largest and is not."""
    insight = claim.insight
    own = truth[insight.aspect, insight.change, insight.place]
    kind = insight.place.split()[0]
    rivals = [
        worth
        for (aspect, change, place), worth in truth.items()
        if (aspect, change) == (insight.aspect, insight.change) and place.startswith(kind) and place != insight.place
    ]
    largest = claim.largest and insight.gain > 0 and own <= max(rivals)
    return own * insight.gain <= 0, largest


def contributions(samples: Samples, passes: int) -> Tests:
    """Shrinking changes the estimator and not the comparisons; without them claims rest on contributions and errors."""
    settings = EstimationSettings(passes=passes, unseen=0)
    shrunk = estimate(samples, settings).estimator
    plain = estimate(samples, replace(settings, shrink=False)).estimator
    return {
        "comparisons, shrinking on": shrunk,
        "comparisons, shrinking off": plain,
        "shrunk contributions": _bare(shrunk),
        "contributions": _bare(plain),
    }


def log_likelihood(samples: Samples, passes: int) -> Tests:
    settings = EstimationSettings(passes=passes, unseen=0, score="log-likelihood")
    return {"comparisons, shrinking on": estimate(samples, settings).estimator}


def single_path(samples: Samples, passes: int) -> Tests:
    settings = EstimationSettings(passes=4 * passes, unseen=0, sampling="single-path")
    return {"comparisons, shrinking on": estimate(samples, settings).estimator}


def whole_networks(samples: Samples, passes: int) -> Tests:
    settings = EstimationSettings(method="bilinear", passes=200, unseen=0)
    found = estimate(samples, settings).estimator
    return {"comparisons": found, "contributions": _bare(found)}


WAYS: dict[str, tuple[Way, tuple[World, ...]]] = {
    "contributions": (contributions, WORLDS),
    "contributions of log-likelihood": (log_likelihood, WORLDS[1:2]),
    "contributions, single-path": (single_path, WORLDS[1:2]),
    "bilinear, from 200 networks": (whole_networks, WORLDS[1:2]),
}


def _bare(estimator: StoredEstimator) -> StoredEstimator:
    """As files were before comparisons; that contributions are shrunk is not told either."""
    return replace(estimator, comparisons=(), provenance={})


def simulate(space: Space, world: World, way: Way, runs: int, images: int, passes: int) -> dict[str, list[list[Claim]]]:
    """By what it is tested by: the claims of every run."""
    found: dict[str, list[list[Claim]]] = {}
    for run in range(runs):
        samples = Samples(space, Planted(space, world, images, run), seed=run)
        for tested_by, estimator in way(samples, passes).items():
            found.setdefault(tested_by, []).append(claims_of(insights_of(estimator)))
    return found


def judged(claims: list[list[Claim]], truth: Truth) -> tuple[int, int, dict[str, float]]:
    """Runs with a false claim, with a false largest, and the share of true effects that were claimed, by size."""
    wrong = [[is_false(claim, truth) for claim in of_run] for of_run in claims]
    counts: dict[str, list[float]] = {}
    for key, worth in truth.items():
        if worth:
            aspect, _, place = key
            said = sum(any(c.insight.key == key for c in of_run) for of_run in claims)
            counts.setdefault(f"{aspect} by {place.split()[0]}, {100 * worth:.2f} points", []).append(
                said / len(claims)
            )
    power = {name: round(float(np.mean(shares)), 3) for name, shares in counts.items()}
    return sum(any(map(any, of_run)) for of_run in wrong), sum(any(m for _, m in of_run) for of_run in wrong), power


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=8)
    arguments = parser.parse_args()
    start, space, rows = time.monotonic(), Space.load("fashion"), []
    print(
        "| estimator | world | tested by | runs with a false claim | effects that were seen |\n|---|---|---|---:|---|"
    )
    for name, (way, worlds) in WAYS.items():
        for world in worlds:
            truth = truth_of(space, world)
            found = simulate(space, world, way, arguments.runs, arguments.images, arguments.passes)
            for tested_by, claims in found.items():
                row = Row(world.name, name, tested_by, arguments.runs, *judged(claims, truth))
                rows.append(row)
                seen = "; ".join(f"{what}: {100 * share:.0f} %" for what, share in row.power.items())
                print(f"| {name} | {world.name} | {tested_by} | {row.false} | {seen} |", flush=True)
    seconds = round(time.monotonic() - start)
    about = {**vars(arguments), "space": space.name, "promised": CHANCE, "seconds": seconds}
    document = {**about, "rows": [asdict(row) for row in rows]}
    (RESULTS / "insights.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"\n{seconds} s")


if __name__ == "__main__":
    main()
