"""What options are worth on average over random networks, by an estimator behind whose link every network differs.

The same means as contributions have: of all networks with an option, and of those alone in which its block takes part.
Errors are the scatter of the refits; like the estimator itself they lean towards what other places say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deploynas.accuracy.indexed import IndexedEstimator

NETWORKS = 200


@dataclass(frozen=True)
class AverageWorth:
    values: np.ndarray  # (options,): mean predictions; only differences within a column mean something
    draws: np.ndarray  # (refits, options): the same by every refit

    def compare(self, weights: np.ndarray) -> tuple[float, float | None]:
        """A weighted sum with its standard error; None without refits."""
        error = float((self.draws @ weights).std(ddof=1)) if len(self.draws) > 1 else None
        return float(self.values @ weights), error


def average_worth(estimator: IndexedEstimator, seed: int = 0) -> AverageWorth:
    """Every option in turn in the same random networks."""
    decisions, rng = estimator.space.decisions, np.random.default_rng(seed)
    base = decisions.draw(NETWORKS, rng)
    values, draws = np.zeros(len(decisions)), np.zeros((len(estimator.refits), len(decisions)))
    for column, (where, size) in enumerate(zip(decisions.slices, decisions.sizes, strict=True)):
        rows = np.repeat(base[None], size, axis=0)
        choice = column - len(decisions.groups)
        if choice >= 0:  # at the depths where it counts
            group, home = decisions.places[choice][0], decisions.home[choice]
            rows[:, :, group] = rng.integers(home, decisions.sizes[group], size=NETWORKS)
        rows[:, :, column] = np.arange(size)[:, None]
        flat = rows.reshape(-1, decisions.columns)
        values[where] = estimator.predict_rows(flat).reshape(size, NETWORKS).mean(1)
        if len(draws):
            draws[:, where] = estimator.draws(flat).reshape(len(draws), size, NETWORKS).mean(2)
    return AverageWorth(values, draws)
