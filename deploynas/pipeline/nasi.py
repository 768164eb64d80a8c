"""`search --solver nasi`: choices weighed before any training, then the exact search among these weights.

The weights are an estimator that ranks, in a file beside the result. The limits are kept by the exact search, so no
budget is ever exceeded. Beside what it finds: random networks within the same limits, as many as it drew itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from deploynas import __version__
from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.training_free.estimator import TrainingFreeEstimator
from deploynas.accuracy.training_free.mixture import MixtureOracle
from deploynas.accuracy.training_free.nasi import NasiSettings, weigh_choices
from deploynas.files import now
from deploynas.pipeline.training_free import RANDOM, batch_source
from deploynas.progress import OnProgress, silent
from deploynas.search.problem import Problem
from deploynas.space import Architecture, Space

IMAGES = 16  # of a step: every block computes all its configurations
DRAWS = 100  # times as many networks as are wanted, until so many are within the limits


@dataclass(frozen=True)
class Nasi:
    """What is weighed, on which images."""

    space: Space
    data: str = RANDOM
    settings: NasiSettings = field(default_factory=NasiSettings)

    def weigh(self, out: Path, on_progress: OnProgress = silent) -> TrainingFreeEstimator:
        """The weights of all options as an estimator that ranks, written to `out`."""
        decisions = self.space.decisions
        found = weigh_choices(decisions, self._oracle(), self.settings, on_progress)
        worth = BilinearEstimator.from_arrays(self.space, 0.0, *decisions.ragged(found.alpha))
        about = {
            "created": now(),
            "deploynas": __version__,
            "method": "nasi",
            "data": self.data,
            "images": IMAGES,
            "asked": asdict(self.settings),
            "nu": found.nu,
            "mean_value": float(np.mean(found.values)),
        }
        estimator = TrainingFreeEstimator(self.space, "nasi", "gumbel", worth, provenance=about)
        estimator.save(out)
        return estimator

    def beside_random(self, found: Architecture, problem: Problem) -> str:
        """How the network's own gradient compares with those of random networks within the limits, in words."""
        wanted, rng = self.settings.steps, np.random.default_rng((self.settings.seed, 5))
        drawn = dict.fromkeys(problem.space.architectures(problem.draw(DRAWS * wanted, rng)))
        rivals = [network for network in drawn if problem.allows(network)][:wanted]
        if not rivals:
            return "no random network was within the limits, so it stands beside none"
        oracle, rows = self._oracle(), self.space.rows([found, *rivals])
        own, *others = (np.mean([oracle.value(row, number) for number in range(2)]) for row in rows)
        above = float(np.mean(np.array(others) > own))
        return (
            f"|mean gradient|^2 is {own:.4g}; of {len(rivals)} random networks within the limits the mean is "
            f"{np.mean(others):.4g}, and {100 * above:.0f} in 100 have more"
        )

    def _oracle(self) -> MixtureOracle:
        source = batch_source(self.space, self.data, self.settings.seed)
        return MixtureOracle(self.space, lambda number: source(number).first(IMAGES), self.settings.seed)
