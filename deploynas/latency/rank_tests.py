"""Mann-Whitney tests of many pairs of samples at once: a long table has more entries than one call each can take.

A call of SciPy costs a millisecond whatever it is given, and takes many pairs of one shape. What it computes depends on
shape and ties alone, exact or by the normal approximation, so pairs that share both are tested together, and every
p-value is the very number that a call of its own gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Pair = tuple[Sequence[float], Sequence[float]]


def mann_whitney(pairs: Sequence[Pair], alternative: Literal["greater", "less"]) -> list[float]:
    """Of every pair, how likely it is that the first is so much greater (or less) than the second by chance."""
    from scipy.stats import mannwhitneyu

    alike: dict[tuple[int, int, bool], list[int]] = {}
    for i, (first, second) in enumerate(pairs):
        ties = len({*first, *second}) < len(first) + len(second)
        alike.setdefault((len(first), len(second), ties), []).append(i)
    found = np.empty(len(pairs))
    for positions in alike.values():
        sides = [np.array([pairs[i][side] for i in positions], float) for side in (0, 1)]
        found[positions] = mannwhitneyu(*sides, alternative=alternative, axis=1).pvalue
    return found.tolist()
