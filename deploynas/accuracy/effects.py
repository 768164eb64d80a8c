"""What contributions have in common: the effects that a contribution is taken to be a sum of, and where they live.

What a kernel is worth in one block says something about what it is worth in the next. So there are effects of every
level of every factor, everywhere, in a stage and in a block, and of what is an option's own.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from deploynas.space import Decisions


def effects_of(decisions: Decisions) -> list[np.ndarray]:
    """For every kind of effect, which options share one: one column for each effect."""
    depths = [(g, depth) for g, group in enumerate(decisions.groups) for depth in group.depths]
    options = [(g, i, option) for g, i in decisions.places for option in decisions.groups[g].choices[i].options]
    factors = list(dict.fromkeys(name for _, _, option in options for name, _ in option.factors))
    kinds: list[list[Hashable]] = []
    for depth_label in (lambda g, d: d, lambda g, d: (g, d)):
        kinds.append([*(depth_label(g, d) for g, d in depths), *(None for _ in options)])
    levels: list[list[Hashable]] = [[dict(option.factors).get(name) for _, _, option in options] for name in factors]
    levels.append([option.label for _, _, option in options])  # the combination itself
    for level in levels:
        for place in (lambda g, i: (), lambda g, i: (g,), lambda g, i: (g, i)):
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
