"""Entries of one kind, aligned with each other: all suffer the same disturbances, so all have the same shape.

On a shared machine the times of a network have two peaks and a long tail, and a few visits to one network show little
of that: their median falls between the peaks, their minimum is luck. But networks are visited in random order, so what
happens to one happens to all; together they show the shape, and each is then moved to where the shape fits it best
(maximum likelihood, visits with similar slowdowns apart). The sharp lower edge of the shape decides, not the tail.
docs/latency-model.md has what this is worth.
"""

from __future__ import annotations

import numpy as np

from deploynas.latency.statistic import draws, half_width

STEP = 0.002  # width of a histogram's cell, in logarithms of times: a fifth of a per cent
CELLS = 600  # of a histogram, from LOWEST on; what lies beyond has no place in the shape
LOWEST = -0.3
START = 0.15  # the quantile that entries are aligned by at first
REACH = 150  # cells that an entry may move in one iteration: from one peak to the other
ITERATIONS = 8
SHARP, BLUNT = 2, 15  # cells: the peaks are smoothed little, the tails more
BLUNT_SHARE = 0.3
FLOOR = 0.02  # density anywhere: a single strange sample says little
GROUPS = 4  # of visits, by how slow the machine was
FEWEST = 8  # entries that make a shape


def align(entry: np.ndarray, log_ms: list[np.ndarray], slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each entry lies, up to what all share, and the half-width of the 95 % interval of that; in logarithms.

    All three are of visits: which entry (0, 1, …) it was to, its samples, and how slow the machine was.
    """
    samples = np.concatenate(log_ms)
    visit = np.repeat(np.arange(len(entry)), [len(one) for one in log_ms])
    group = np.searchsorted(np.quantile(slowdown, np.arange(1, GROUPS) / GROUPS), slowdown, side="left")
    moves = np.arange(-REACH, REACH + 1)
    start = np.array([np.quantile(samples[entry[visit] == i], START) for i in range(entry.max() + 1)])
    location = start.copy()
    likelihood = np.zeros((len(entry), len(moves)))
    for _ in range(ITERATIONS):
        cell = np.rint((samples - location[entry[visit]] - LOWEST) / STEP).clip(0, CELLS - 1).astype(int)
        counts = np.bincount(visit * CELLS + cell, minlength=len(entry) * CELLS).reshape(len(entry), CELLS)
        for g in np.unique(group):
            log_density = np.log(_density(counts[group == g].sum(axis=0)))
            moved = np.stack([log_density[(np.arange(CELLS) - move).clip(0, CELLS - 1)] for move in moves], axis=1)
            likelihood[group == g] = counts[group == g] @ moved
        together = np.zeros((len(location), len(moves)))
        np.add.at(together, entry, likelihood)
        location += STEP * _mean_move(together, moves)
        location = location.clip(start - STEP * REACH, start + STEP * REACH)
    errors = [_error(likelihood[entry == i], moves) for i in range(len(location))]
    return location, np.array(errors)


def _density(counts: np.ndarray) -> np.ndarray:
    from scipy.ndimage import gaussian_filter1d

    counts = counts.astype(float)
    counts[[0, -1]] = 0.0  # what lies beyond
    density = gaussian_filter1d(counts, SHARP) + BLUNT_SHARE * gaussian_filter1d(counts, BLUNT)
    density = density / max(density.sum(), 1.0) / STEP + FLOOR
    density[[0, -1]] = FLOOR  # no entry may gain by moving its samples out of sight
    return density


def _mean_move(log_likelihood: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """The expected move of each row: smoother than the best one."""
    chance = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    return chance @ moves / chance.sum(axis=1)


def _error(likelihood: np.ndarray, moves: np.ndarray) -> float:
    """By drawing visits again: samples of one visit share what the machine was doing then."""
    visits = len(likelihood)
    if visits < 2:
        return float("inf")
    places = STEP * _mean_move(draws(visits) @ likelihood, moves)
    return float(np.hypot(half_width(places, visits), STEP / 2))  # nothing is known better than a cell
