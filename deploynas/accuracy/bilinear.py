"""The bilinear estimator (eq. 3): what every depth and every block configuration contributes to accuracy.

ACC = base + sum over stages of depth[s][chosen depth] + sum over the blocks that take part of block[s][b][c].
No term couples two stages: that is what makes the whole frontier of a latency table computable exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from deploynas.accuracy.estimator_file import EstimatorFile, StoredEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture, Depths, Ragged, Space
from deploynas.space.coefficients import Objective, Scale, SeparableObjective


class BilinearFile(EstimatorFile):
    kind: Literal["bilinear"] = "bilinear"
    base: float
    depth: list[list[float]]
    block: list[list[list[float]]]
    base_se: float | None = None
    depth_se: list[list[float]] | None = None
    block_se: list[list[list[float]]] | None = None


@dataclass(frozen=True)
class StandardErrors:
    """One for each coefficient, taken as independent of each other."""

    base: float
    depth: Depths
    block: Ragged

    @classmethod
    def checked(cls, space: Space, base: float, depth: Sequence, block: Sequence) -> StandardErrors:
        if not 0 <= base < math.inf:
            raise InputError(f"base_se must be finite and not negative, got {base}")
        return cls(
            float(base),
            space.require_depths(depth, "depth_se", minimum=0.0),
            space.require_blocks(block, "block_se", minimum=0.0),
        )


@dataclass(frozen=True)
class BilinearEstimator(StoredEstimator):
    """Accuracy (0..1) as a sum of contributions; see the module for the formula."""

    File: ClassVar = BilinearFile

    base: float
    depth: Depths
    block: Ragged  # [stage][block][configuration]
    errors: StandardErrors | None = None

    @classmethod
    def from_arrays(
        cls, space: Space, base: float, depth: Sequence, block: Sequence, errors: StandardErrors | None = None
    ) -> BilinearEstimator:
        """`depth[s][i]` is for the i-th depth of stage s, `block[s][b][c]` for configuration c of block b."""
        if not math.isfinite(base):
            raise InputError(f"base must be finite, got {base}")
        checked = space.require_depths(depth, "depth"), space.require_blocks(block, "block")
        return cls(space, float(base), *checked, errors)

    def _coefficients(self) -> dict[str, object]:
        return {
            "base": self.base,
            "depth": self.depth,
            "block": self.block,
            "base_se": self.errors.base if self.errors else None,
            "depth_se": self.errors.depth if self.errors else None,
            "block_se": self.errors.block if self.errors else None,
        }

    @classmethod
    def _from_file(cls, space: Space, file: EstimatorFile) -> BilinearEstimator:
        assert isinstance(file, BilinearFile)
        errors = None
        if file.depth_se is not None and file.block_se is not None:
            errors = StandardErrors.checked(space, file.base_se or 0.0, file.depth_se, file.block_se)
        elif file.depth_se is not None or file.block_se is not None:
            raise InputError("standard errors must be given for depths and blocks, or for neither")
        return cls.from_arrays(space, file.base, file.depth, file.block, errors)

    def predict(self, architecture: Architecture) -> float:
        """Eq. 3, added up in network order: stage by stage, its blocks and then its depth, as the search
        does.
        """
        self.space.require_member(architecture)
        return _total(self.space, architecture, self.base, self.depth, self.block)

    def predict_se(self, architecture: Architecture) -> float | None:
        """The standard error that those of the contributions imply; None when they are not known."""
        if self.errors is None:
            return None
        self.space.require_member(architecture)
        depth = tuple(tuple(e * e for e in row) for row in self.errors.depth)
        block = tuple(tuple(tuple(e * e for e in row) for row in stage) for stage in self.errors.block)
        return math.sqrt(_total(self.space, architecture, self.errors.base**2, depth, block))

    def objective(self) -> Objective:
        return self.separable("accuracy")

    def separable(self, scale: Scale) -> SeparableObjective:
        """The sum by its coefficients; a sum of contributions to something else than accuracy only ranks."""
        return SeparableObjective.from_contributions(self.space, self.base, self.depth, self.block, scale)


def _total(space: Space, architecture: Architecture, base: float, depth: Depths, block: Ragged) -> float:
    total = base
    for s, choice in enumerate(architecture.choices):
        for b, c in enumerate(choice):
            total += block[s][b][c]
        total += depth[s][space.decisions.groups[s].depths.index(len(choice))]
    return total
