"""How fast the machine was at each visit, so that its moods are not mistaken for a network's.

On a shared machine somebody else's work on the same physical core makes everything slower by tens of per cent, for
milliseconds to minutes. Entries are visited in random order, so the visits around any moment tell how slow the machine
was then: the median, over a few visits before and after, of how much slower each was than its own entry usually is.

That is relative to the usual, which may itself be slow. What is undisturbed is known from the references: isolated
blocks, so short that even on a busy machine some inferences fall between two disturbances. Their fastest twentieth
says what undisturbed means, the same today and tomorrow, and for tables and networks timed at different hours
(docs/latency-model.md has what this is worth).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

NEIGHBOURS = 6  # visits before and after that vote on a moment's speed
ITERATIONS = 5  # what is usual for an entry depends on how slow the machine was when, and the other way round
UNDISTURBED = 0.05  # the share of inferences that is taken to be undisturbed: the least seen in bad hours, and enough
MIN_REFERENCES = 5  # with fewer, an entry would be divided by its own noise


def slowdowns(
    entries: Sequence[str], samples_ms: Sequence[Sequence[float] | np.ndarray], references: Collection[str]
) -> np.ndarray:
    """For visits in the order they were made: by what factor the machine was slower than undisturbed."""
    names, index = np.unique(np.asarray(entries, dtype=str), return_inverse=True)
    known = [i for i, name in enumerate(names) if name in references]
    if len(known) < MIN_REFERENCES:
        return np.ones(len(index))
    log_ms = [np.log(samples) for samples in samples_ms]
    medians = np.array([np.median(samples) for samples in log_ms])
    level = np.zeros(len(index))
    for _ in range(ITERATIONS):
        settled = medians - level
        usual = np.array([np.median(settled[index == i]) for i in range(len(names))])
        level = _running_median(medians - usual[index])
    fastest = [
        np.quantile(np.concatenate([log_ms[v] for v in np.flatnonzero(index == i)]), UNDISTURBED) - usual[i]
        for i in known
    ]
    return np.exp(np.maximum(level - np.median(fastest), 0.0))


def _running_median(values: np.ndarray) -> np.ndarray:
    """The median of each value and its neighbours; fewer at the ends."""
    padded = np.pad(values, NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1)
    return np.nanmedian(windows, axis=1)
