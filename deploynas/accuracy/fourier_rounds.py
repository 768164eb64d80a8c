"""CoNAS on a supernet: every measurement is a pass of one network over the validation images, and passes are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deploynas.accuracy.conas import TERMS, ConasSettings, Decided, conas
from deploynas.accuracy.fourier_fit import FourierSettings
from deploynas.accuracy.registry import Score
from deploynas.accuracy.samples import Pass, Samples
from deploynas.progress import OnProgress, silent


@dataclass(frozen=True)
class RoundsOnSupernet:
    """What rounds measured, and the network that they decided on."""

    passes: tuple[Pass, ...]
    decided: Decided


def measure_in_rounds(
    samples: Samples,
    fourier: FourierSettings,
    rounds: int,
    passes: int,
    score: Score = "accuracy",
    on_progress: OnProgress = silent,
) -> RoundsOnSupernet:
    """`passes` networks in all, shared evenly among rounds; fewer where all is decided before."""
    taken: list[Pass] = []

    def measure(rows: np.ndarray) -> np.ndarray:
        values = []
        for row in rows:
            taken.append(samples.network(row))
            values.append(taken[-1].mean(score))
            on_progress(min(1.0, len(taken) / passes), f"network {len(taken)}")
        return np.array(values)

    own = replace(fourier, recovery=replace(fourier.recovery, terms=fourier.recovery.terms or TERMS))
    settings = ConasSettings(measurements=passes // rounds, rounds=rounds, fourier=own, seed=samples.seed)
    decided = conas(samples.space, measure, settings)
    return RoundsOnSupernet(tuple(taken), decided)
