"""What a comparison of design choices comes to at one network: the same change made there, everything else as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deploynas.accuracy.comparisons import ChoiceComparison
from deploynas.accuracy.differences import Difference, differences
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.space import Architecture


def worth_at(estimator: StoredEstimator, comparison: ChoiceComparison, network: Architecture) -> Difference | None:
    """The high level minus the low one, the mean over the blocks of the place; None if the network has none there.

    A block keeps everything else about it, as far as the space has such a configuration; an added block repeats the
    last one.
    """
    pairs = _of_depth(comparison, network) if comparison.aspect == "depth" else _of_blocks(comparison, network)
    if not pairs:
        return None
    rows = estimator.space.rows([one for pair in pairs for one in pair])
    weights = np.tile([1.0, -1.0], len(pairs)) / len(pairs)
    return differences(estimator, rows, weights[None])[0]


def _of_depth(comparison: ChoiceComparison, network: Architecture) -> list[tuple[Architecture, Architecture]]:
    ((s, weights),) = comparison.terms
    own, depths = network.choices[s], comparison.decisions.groups[s].depths

    def with_depth(depth: int) -> Architecture:
        return _with_stage(network, s, (*own, *(own[-1],) * depth)[:depth])

    return [(with_depth(depths[int(weights.argmax())]), with_depth(depths[int(weights.argmin())]))]


def _of_blocks(comparison: ChoiceComparison, network: Architecture) -> list[tuple[Architecture, Architecture]]:
    decisions, pairs = comparison.decisions, []
    for column, weights in comparison.terms:
        s, b = decisions.places[column - len(decisions.groups)]
        own = network.choices[s]
        if b < len(own):
            high, low = (
                _nearest(network, (s, b), own[b], comparison.aspect, np.flatnonzero(sign * weights > 0).tolist())
                for sign in (1, -1)
            )
            pairs.append(tuple(_with_stage(network, s, (*own[:b], c, *own[b + 1 :])) for c in (high, low)))
    return pairs  # type: ignore[return-value]


def _nearest(network: Architecture, place: tuple[int, int], own: int, aspect: str, candidates: Sequence[int]) -> int:
    """The configuration that has most in common with a block's own, but for the aspect."""
    s, b = place
    options = network.space.decisions.groups[s].choices[b].options
    wanted = dict(options[own].factors)

    def alike(c: int) -> tuple[bool, int]:
        factors = dict(options[c].factors)
        same = sum(factors.get(name) == level for name, level in wanted.items() if name != aspect)
        return options[c].kind == options[own].kind, same

    return max(candidates, key=alike)


def _with_stage(network: Architecture, s: int, own: tuple[int, ...]) -> Architecture:
    return network.space.architecture([*network.choices[:s], own, *network.choices[s + 1 :]])
