"""Decisions as probabilities: a softmax over the options of every column of a vector, and derivatives through it."""

from __future__ import annotations

import numpy as np

from deploynas.space.decisions import Decisions


def softmax(decisions: Decisions, logits: np.ndarray) -> np.ndarray:
    """The probability of every option among those of its column."""
    p = np.empty(len(decisions))
    for where in decisions.slices:
        own = np.exp(logits[where] - logits[where].max())
        p[where] = own / own.sum()
    return p


def log_softmax(decisions: Decisions, logits: np.ndarray) -> np.ndarray:
    """Its logarithm, also where a probability is too small for a number."""
    log_p = np.empty(len(decisions))
    for where in decisions.slices:
        own = logits[where] - logits[where].max()
        log_p[where] = own - np.log(np.exp(own).sum())
    return log_p


def through_softmax(decisions: Decisions, logits: np.ndarray, by_option: np.ndarray) -> np.ndarray:
    """The derivative by the logits, from that by the options' probabilities: p_k (d_k - mean of d)."""
    gradient, p = np.empty(len(decisions)), softmax(decisions, logits)
    for where in decisions.slices:
        gradient[where] = p[where] * (by_option[where] - p[where] @ by_option[where])
    return gradient
