"""Estimators with a planted truth: indices whose contributions resemble real ones, behind links of several shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import deploynas as dn
from deploynas.accuracy.indexed import Index, IndexedEstimator
from deploynas.space.link import Link

SPACE = dn.Space.load(str(Path(__file__).parents[1] / "golden" / "spaces" / "first-fashion.yaml"))


def networks(n: int, seed: int) -> list[dn.Architecture]:
    rng = np.random.default_rng(seed)
    return [SPACE.sample(rng) for _ in range(n)]


def index(seed: int, scale: float = 1.0) -> Index:
    """What a factor is worth differs between stages, and what a configuration is worth a little between blocks."""
    rng = np.random.default_rng(seed)
    depth = [rng.normal(scale=0.5 * scale, size=len(s.depths)) for s in SPACE.stages]
    block = []
    for stage in SPACE.stages:
        ratio, kernel, se = rng.normal(scale=0.3 * scale, size=3)
        worth = [ratio * np.log2(c.ratio) + kernel * (c.kernel == 5) + se * (c.se > 0) for c in stage.configs]
        block.append(np.array(worth) + rng.normal(scale=0.1 * scale, size=(stage.max_depth, len(stage.configs))))
    return Index.from_arrays(SPACE, 0.0, depth, block)


def bent(at: float = 0.0) -> Link:
    """Rises fast up to a point, and slowly from there on."""
    return Link(0.7, np.array([0.01]), np.array([0.1]), np.array([[1.0]]), np.array([1.0 - at]))


def both_needed() -> Link:
    """Too little of either index cannot be made up for by the other."""
    steepness = np.array([[1.0, 0.0], [0.0, 1.0]])
    return Link(0.6, np.array([0.005, 0.005]), np.array([0.1, 0.1]), steepness, np.array([0.5, 0.5]))


def planted(link: Link, seed: int = 0) -> IndexedEstimator:
    return IndexedEstimator(SPACE, tuple(index(seed + i) for i in range(link.indices)), link)


def accuracies(estimator: IndexedEstimator, nets: list[dn.Architecture]) -> np.ndarray:
    return np.array([estimator.predict(a) for a in nets])


def error(found: IndexedEstimator, truth: IndexedEstimator) -> float:
    unseen = networks(200, seed=99)
    return float(np.abs(accuracies(found, unseen) - accuracies(truth, unseen)).mean())
