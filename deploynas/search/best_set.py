"""Which of many networks answer best together, by what each said about the same images.

The loss of an ensemble is the mean over images of -log of the mean probability that its members give the right class
(the validation loss of the averaged output). Members need not be asked again: their probabilities are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from deploynas.errors import InputError
from deploynas.search.joint_budget import Running

EXACT = (2, 3)  # members: of 100 networks there are 161,700 triples, and four million quadruples
LEAST = 1e-12  # of a probability, so that one image cannot outweigh all


def loss(right: np.ndarray) -> float:
    """`right`: (members, images), the probability of the right class."""
    return float(-np.log(np.maximum(right.mean(0), LEAST)).mean())


def best_set(
    right: np.ndarray, latencies_ms: Sequence[float], members: int, running: Running, budget_ms: float
) -> tuple[tuple[int, ...] | None, int]:
    """The pair or triple with the least loss within the budget, proven by trying all; and how many there are.

    `right`: (networks, images). None if no set is within the budget.
    """
    if members not in EXACT:
        raise InputError(
            f"the exact best set is of two or three networks, got {members}: there are too many larger ones to try",
            hint="`--sampling mc` or `--sampling svgd-rd`",
        )
    latency, positions = np.asarray(latencies_ms), np.arange(len(right))
    best: tuple[float, tuple[int, ...] | None] = (np.inf, None)
    tried = 0
    for first in itertools.combinations(range(len(right)), members - 1):
        later = positions[first[-1] + 1 :]
        # added in the order of the members, as `JointBudget.latency_ms` does
        own = sum(latency[i] for i in first) if running == "serial" else max(latency[i] for i in first)
        together = own + latency[later] if running == "serial" else np.maximum(own, latency[later])
        later = later[together <= budget_ms]
        if not len(later):
            continue
        mean = (right[list(first)].sum(0) + right[later]) / members
        losses = -np.log(np.maximum(mean, LEAST)).mean(1)
        tried += len(later)
        least = int(np.argmin(losses))
        if losses[least] < best[0]:
            best = (float(losses[least]), (*first, int(later[least])))
    return best[1], tried
