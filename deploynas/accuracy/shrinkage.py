"""Contributions after a few passes are mostly noise, reduced by what they have in common (empirical Bayes).

A configuration is an expansion ratio, a kernel and a squeeze-and-excitation ratio, and what a kernel is worth in one
block says something about what it is worth in the next. So a contribution is taken to be a sum of effects: of its
level of every factor, everywhere, in its stage and in its block, and of what is its own. Each kind of effect has one
variance, found by maximum (penalised) likelihood from all contributions and the covariance of their errors; kinds
that the samples do not speak for get next to none. The result is the posterior mean with its standard deviation:
more bias, much less noise, and the contributions themselves again once passes are many.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deploynas.accuracy.contributions import Contributions
from deploynas.accuracy.effects import basis_of, effects_of
from deploynas.accuracy.registry import ESTIMANDS, Estimand, require_known
from deploynas.space import Decisions

ITERATIONS = 300  # at most, of the fixed point of the variances


def shrunk(found: Contributions, estimand: Estimand) -> Contributions:
    """The same contributions with less noise; standard errors become posterior standard deviations."""
    require_known("estimand", estimand, ESTIMANDS)
    decisions = found.space.decisions
    covariance = found.covariance if found.covariance is not None else np.diag(found.errors**2)
    own, back = _apart_from_depth(decisions, estimand)
    basis = basis_of(decisions)
    observed = basis.T @ own @ found.values
    noise = basis.T @ own @ covariance @ own.T @ basis
    kinds = [basis.T @ kind for kind in effects_of(decisions)]
    # a factor with one level has no effects
    prior = covariance_of_effects([kind @ kind.T for kind in kinds if np.abs(kind).max() > 1e-9], observed, noise)
    gain = prior @ np.linalg.pinv(prior + noise, hermitian=True)
    spread = back @ basis @ (prior - gain @ prior) @ basis.T @ back.T
    return replace(
        found,
        values=back @ basis @ gain @ observed,
        errors=np.sqrt(np.maximum(np.diag(spread), 0)),
        covariance=spread,
    )


def covariance_of_effects(kinds: list[np.ndarray], observed: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The covariance of the true contributions: a variance for every kind of effect, by maximum likelihood.

    Each step multiplies a variance by the square root of how much of that kind is seen over how much is expected,
    which never lowers the likelihood. A kind with few effects (six depths, say) may look like none at all by chance,
    and errors would then be too small; or like anything at all. So every standard deviation has a weak prior, which
    keeps it from zero and from more than was observed, and weighs little against many effects.
    """
    scale = float(observed @ observed)
    if scale == 0:
        return np.zeros_like(noise)
    floor = 1e-9 * (np.trace(noise) + scale) / len(noise) * np.eye(len(noise))  # few images leave the noise singular
    most = np.array([scale / np.trace(kind) for kind in kinds])  # if everything observed were of this kind
    variances = most / len(kinds)
    flat = np.stack(kinds).reshape(len(kinds), -1)
    for _ in range(ITERATIONS):
        prior = (variances @ flat).reshape(noise.shape)
        inverse = np.linalg.inv(floor + noise + prior)
        seen = inverse @ observed
        evidence = flat @ np.outer(seen, seen).ravel() + 1 / variances
        before, variances = variances, variances * np.sqrt(evidence / (flat @ inverse.ravel() + 1 / most))
        if np.allclose(variances, before, rtol=1e-3, atol=0):
            break
    return (variances @ flat).reshape(noise.shape)


def _apart_from_depth(decisions: Decisions, estimand: Estimand) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 3 as printed counts a depth's worth into its blocks: what takes it out, and what puts it back.

    `projection` does not, and both are the identity.
    """
    depth_of = np.zeros((len(decisions), len(decisions)))
    if estimand == "paper":
        for (g, i), home in zip(decisions.places, decisions.home, strict=True):
            depth_of[decisions.slices[decisions.column(g, i)], decisions.starts[g] + home] = 1
    return np.eye(len(decisions)) - depth_of, np.eye(len(decisions)) + depth_of
