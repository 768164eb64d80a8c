"""A stand-in for a supernet whose contributions are known exactly: by enumeration of all its paths."""

from __future__ import annotations

import itertools

import numpy as np

from deploynas.accuracy.registry import Estimand
from deploynas.accuracy.samples import Scores
from deploynas.space import Space


class Synthetic:
    """Images of differing difficulty along paths of known worth.

    The worth has depth and block terms, blocks that matter less in deeper stages, and a product across stages,
    so no estimator's form is exact. Images disagree with each other about the first decisions.
    """

    def __init__(self, space: Space, images: int = 300, seed: int = 0, world: int = 0) -> None:
        self.decisions, self.images = space.decisions, images
        fixed = np.random.default_rng(world)
        self.tables = [fixed.normal(scale=0.06, size=size) for size in self.decisions.sizes]
        self.rng = np.random.default_rng(seed)
        self.difficulty = self.rng.normal(scale=0.1, size=images)
        self.taste = self.rng.normal(scale=0.05, size=(images, self.decisions.sizes[0]))

    def worth(self, paths: np.ndarray) -> np.ndarray:
        stages = len(self.decisions.groups)
        total = 0.6 + sum(self.tables[s][paths[:, s]] for s in range(stages))
        part = self.decisions.counts(paths)[:, stages:]
        for i, (s, _) in enumerate(self.decisions.places):
            shallow = 1 / (1.0 + paths[:, s])
            total = total + part[:, i] * shallow * self.tables[stages + i][paths[:, stages + i]]
        return total + 0.03 * paths[:, 0] * (paths[:, 1] - 0.5)

    def __call__(self, paths: np.ndarray) -> Scores:
        paths = np.broadcast_to(paths, (self.images, paths.shape[1]))
        chance = self.worth(paths) + self.difficulty + self.taste[np.arange(self.images), paths[:, 0]]
        right = self.rng.random(self.images) < chance
        return Scores(right, (chance + self.rng.normal(scale=0.05, size=self.images)).astype(np.float32))

    def truth(self, estimand: Estimand) -> tuple[float, np.ndarray]:
        """Base and contributions by their definitions: conditional means over all paths."""
        d = self.decisions
        paths = np.array(list(itertools.product(*(range(size) for size in d.sizes))))
        y = self.worth(paths)
        values = []
        for column, size in enumerate(d.sizes):
            block = column - len(d.groups)
            among = np.ones(len(y), dtype=bool)
            if block >= 0:
                depth = paths[:, d.places[block][0]]
                among = depth == d.home[block] if estimand == "paper" else depth >= d.home[block]
            reference = y[among].mean() if block >= 0 and estimand == "projection" else y.mean()
            values += [y[among & (paths[:, column] == option)].mean() - reference for option in range(size)]
        return float(y.mean()), np.array(values)
