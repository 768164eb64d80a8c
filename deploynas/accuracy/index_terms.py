"""The regression behind an index: which columns the decisions of networks make, and what its weights contribute.

Contributions of one decision sum to zero. Where the input size is open, what a stage's decisions are worth may deviate
from size to size: by its depth, and by the levels of every factor, the same for all blocks of the stage (one for every
block would ask for more samples than there are). Deviations sum to zero over the sizes. They have kinds of effect of
their own, so that a fit finds next to none where the observations do not speak for them.
"""

from __future__ import annotations

import numpy as np

from deploynas.accuracy.effects import basis_of, effects_of, effects_of_stages
from deploynas.accuracy.indexed import Index, SizeDeviation
from deploynas.space import Space

MANY_ENTRIES = 500_000  # of a design that is then kept in single precision


class Terms:
    """One column for every weight: of single decisions and, with `by_size`, of a stage's decisions at an input size."""

    def __init__(self, space: Space, by_size: bool) -> None:
        self.space, self.by_size = space, by_size
        self.columns = basis_of(space.decisions)  # (options, weights): of single decisions
        self.effects = _that_differ([self.columns.T @ effect for effect in effects_of(space.decisions)])
        # (options, weights), with `by_size` followed by the options at every size: what weights contribute
        self.contributed = self.columns
        if by_size:
            self._pair_with_sizes()

    def _pair_with_sizes(self) -> None:
        decisions, sizes = self.space.decisions, len(self.space.sizes)
        found = effects_of_stages(decisions)
        for effect in found:
            effect[decisions.slices[-1]] = 0.0  # the size itself
        effects = _that_differ([self.columns.T @ effect for effect in found])
        if not effects:  # the size is all that is decided
            self.by_size = False
            return
        vectors, lengths, _ = np.linalg.svd(np.concatenate(effects, axis=1), full_matrices=False)
        self.patterns = vectors[:, lengths > 1e-9]  # orthonormal, all that the effects are made of
        self.contrasts = np.linalg.svd(np.eye(sizes) - 1 / sizes)[0][:, :-1]  # (sizes, contrasts), orthonormal
        deviations = [np.kron(self.columns @ self.patterns, own[None]) for own in self.contrasts]
        self.contributed = _side_by_side(self.columns, np.concatenate(deviations))
        paired = [np.kron(self.patterns.T @ effect, np.eye(sizes - 1)) for effect in effects]
        alone, pairs = self.columns.shape[1], paired[0].shape[0]
        self.effects = [np.pad(effect, ((0, pairs), (0, 0))) for effect in self.effects]
        self.effects += [np.pad(effect, ((alone, 0), (0, 0))) for effect in paired]

    @property
    def size(self) -> int:
        """The number of weights."""
        return self.contributed.shape[1]

    def design(self, paths: np.ndarray) -> np.ndarray:
        """One row per path; decisions that do not count are zero."""
        decisions = self.space.decisions
        counts = decisions.counts(paths)
        dtype = np.float32 if len(paths) * self.size > MANY_ENTRIES else np.float64
        x = np.zeros((len(paths), self.columns.shape[1]), dtype=dtype)
        for column, where in enumerate(decisions.slices):
            table = self.columns[where]
            own = np.flatnonzero(np.abs(table).max(axis=0) > 0)
            x[:, own] = table[:, own][paths[:, column].astype(int)] * counts[:, column, None]
        if not self.by_size:
            return x
        at_size = self.contrasts.astype(dtype)[paths[:, -1].astype(int)]
        pairs = (x @ self.patterns.astype(dtype))[:, :, None] * at_size[:, None, :]
        return np.concatenate([x, pairs.reshape(len(x), -1)], axis=1)

    def index(self, base: float, contributions: np.ndarray) -> Index:
        """From contributions in the order of the rows of `contributed`."""
        decisions = self.space.decisions
        alone, *at_sizes = contributions.reshape(-1, len(decisions))
        by_size = [SizeDeviation(*decisions.ragged(own)) for own in at_sizes]
        return Index.from_arrays(self.space, base, *decisions.ragged(alone), by_size=by_size)

    def contributions(self, index: Index) -> np.ndarray:
        """The inverse of `index`."""
        flat, nothing = self.space.decisions.flat, np.zeros(len(self.contributed) - len(self.columns))
        deviations = [flat(own.depth, own.block) for own in index.by_size] or [nothing]
        return np.concatenate([flat(index.depth, index.block), *deviations])


def _that_differ(effects: list[np.ndarray]) -> list[np.ndarray]:
    """Without those of a single level."""
    return [effect for effect in effects if np.abs(effect).max() > 1e-9]


def _side_by_side(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The block-diagonal matrix of two."""
    right, below = ((0, 0), (0, other.shape[1])), ((0, 0), (one.shape[1], 0))
    return np.concatenate([np.pad(one, right), np.pad(other, below)])
