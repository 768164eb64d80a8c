"""What contributions have in common: the effects that a contribution is taken to be a sum of, and where they live.

What a kernel is worth in one block says something about what it is worth in the next. So there are effects of every
level of every factor, everywhere, in a stage and in a block, and of what is an option's own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from deploynas.space import Decisions

# which places share an effect: all, those of a stage (a group), or none with another
EVERYWHERE, IN_STAGE, IN_BLOCK = (lambda g, i: ()), (lambda g, i: (g,)), (lambda g, i: (g, i))


def effects_of(decisions: Decisions) -> list[np.ndarray]:
    """For every kind of effect, which options share one: one column for each effect."""
    combinations = [decisions.groups[g].choices[i].options[o].label for g, i, o in _options(decisions)]
    return _effects(decisions, [*_levels(decisions), combinations], (EVERYWHERE, IN_STAGE, IN_BLOCK))


def effects_of_stages(decisions: Decisions) -> list[np.ndarray]:
    """Only those that the blocks of a stage share: of its depth, and of the levels of every factor."""
    return _effects(decisions, _levels(decisions), (EVERYWHERE, IN_STAGE))


def _options(decisions: Decisions) -> list[tuple[int, int, int]]:
    """(group, choice, option) of every option of every choice."""
    return [(g, i, o) for g, i in decisions.places for o in range(len(decisions.groups[g].choices[i].options))]


def _levels(decisions: Decisions) -> list[Sequence[Hashable]]:
    """For every factor, the level that each option has of it; None where it has none."""
    factors = [dict(decisions.groups[g].choices[i].options[o].factors) for g, i, o in _options(decisions)]
    names = list(dict.fromkeys(name for own in factors for name in own))
    return [[own.get(name) for own in factors] for name in names]


def _effects(
    decisions: Decisions, levels: Sequence[Sequence[Hashable]], places: Sequence[Callable[[int, int], tuple[int, ...]]]
) -> list[np.ndarray]:
    depths = [(g, depth) for g, group in enumerate(decisions.groups) for depth in group.depths]
    options = _options(decisions)
    kinds: list[list[Hashable]] = []
    for depth_label in (lambda g, d: d, lambda g, d: (g, d)):
        kinds.append([*(depth_label(g, d) for g, d in depths), *(None for _ in options)])
    for level in levels:
        for place in places:
            kinds.append([
                *(None for _ in depths),
                *(None if own is None else (*place(g, i), own) for (g, i, _), own in zip(options, level, strict=True)),
            ])  # fmt: skip
    return [_indicators(labels) for labels in kinds]


def _indicators(labels: list[Hashable]) -> np.ndarray:
    known = list(dict.fromkeys(label for label in labels if label is not None))
    return np.array([[float(label == one) for one in known] for label in labels])


def basis_of(decisions: Decisions) -> np.ndarray:
    """Orthonormal columns that span the contributions: those of one place sum to zero."""
    blocks = []
    for size in decisions.sizes:
        centred = np.eye(size) - 1 / size
        vectors, sizes, _ = np.linalg.svd(centred)
        blocks.append(vectors[:, sizes > 0.5])
    basis = np.zeros((len(decisions), sum(block.shape[1] for block in blocks)))
    column = 0
    for where, block in zip(decisions.slices, blocks, strict=True):
        basis[where, column : column + block.shape[1]] = block
        column += block.shape[1]
    return basis
