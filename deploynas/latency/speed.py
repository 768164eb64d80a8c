"""How fast the machine was at each visit, so that its moods are not mistaken for a network's.

Shared machines slow down by tens of per cent for seconds to minutes. Entries are visited in random order, so the
visits around any moment tell how slow the machine was then: the median, over a few visits before and after, of how
much slower each was than its own entry usually is. Dividing by it took the error of whole-network predictions from
4.7 % to 1.3 % in a recording where the machine was slow by 16 % or more half of the time, and changed nothing in a
quiet one (docs/latency-model.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NEIGHBOURS = 6  # visits before and after that vote on a moment's speed
ITERATIONS = 5  # what is usual for an entry depends on how slow the machine was when, and the other way round
USUAL = 0.3  # the quantile of its visits that is usual for an entry
UNDISTURBED = 0.1  # the share of the time in which the machine is taken to be undisturbed
MIN_ENTRIES = 20  # with fewer, an entry would be divided by its own noise


def slowdowns(entries: Sequence[str], samples_ms: Sequence[Sequence[float]]) -> np.ndarray:
    """For visits in the order they were made: by what factor the machine was slower than undisturbed."""
    _, index = np.unique(np.asarray(entries), return_inverse=True)
    count = int(index.max()) + 1 if len(index) else 0
    if count < MIN_ENTRIES:
        return np.ones(len(index))
    log_ms = np.log([float(np.median(samples)) for samples in samples_ms])
    level = np.zeros(len(index))
    for _ in range(ITERATIONS):
        settled = log_ms - level
        usual = np.array([np.quantile(settled[index == i], USUAL) for i in range(count)])
        level = _running_median(log_ms - usual[index])
        level -= np.quantile(level, UNDISTURBED)
    return np.exp(np.maximum(level, 0.0))


def _running_median(values: np.ndarray) -> np.ndarray:
    """The median of each value and its neighbours; fewer at the ends."""
    padded = np.pad(values, NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1)
    return np.nanmedian(windows, axis=1)
