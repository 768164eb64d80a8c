"""The bilinear estimator (eq. 3): what every depth and every block configuration contributes to accuracy.

ACC = base + sum over stages of depth[s][chosen depth] + sum over the blocks that take part of block[s][b][c].
No term couples two stages: that is what makes the whole frontier of a latency table computable exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from deploynas.accuracy.estimator_file import EstimatorFile, EstimatorValidation
from deploynas.errors import InputError
from deploynas.files import parse_json, write_json
from deploynas.space import Architecture, Ragged, Space

Depths = tuple[tuple[float, ...], ...]  # [stage][index of the depth]


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


@dataclass(frozen=True)
class BilinearEstimator:
    """Accuracy (0..1) as a sum of contributions; see the module for the formula."""

    space: Space
    base: float
    depth: Depths
    block: Ragged  # [stage][block][configuration]
    errors: StandardErrors | None = None
    validation: EstimatorValidation | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        space: Space,
        base: float,
        depth: Sequence,
        block: Sequence,
        *,
        base_se: float | None = None,
        depth_se: Sequence | None = None,
        block_se: Sequence | None = None,
        validation: EstimatorValidation | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> BilinearEstimator:
        """`depth[s][i]` is for the i-th depth of stage s, `block[s][b][c]` for configuration c of block b."""
        if not math.isfinite(base):
            raise InputError(f"base must be finite, got {base}")
        return cls(
            space,
            float(base),
            space.require_depths(depth, "depth"),
            space.require_blocks(block, "block"),
            _standard_errors(space, base_se, depth_se, block_se),
            validation,
            dict(provenance or {}),
        )

    @classmethod
    def load(cls, path: str | Path) -> BilinearEstimator:
        file = parse_json(Path(path), BilinearFile)
        return cls.from_arrays(
            file.checked_space(path),
            file.base,
            file.depth,
            file.block,
            base_se=file.base_se,
            depth_se=file.depth_se,
            block_se=file.block_se,
            validation=file.validation,
            provenance=file.provenance,
        )

    def save(self, path: str | Path) -> None:
        file = BilinearFile(
            space=self.space.describe(),
            space_hash=self.space.hash,
            base=self.base,
            depth=_lists(self.depth),
            block=_lists(self.block),
            base_se=self.errors.base if self.errors else None,
            depth_se=_lists(self.errors.depth) if self.errors else None,
            block_se=_lists(self.errors.block) if self.errors else None,
            validation=self.validation,
            provenance=self.provenance,
        )
        write_json(Path(path), file.model_dump(by_alias=True))

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
        squares = (_squares(self.errors.depth), _squares(self.errors.block))
        return math.sqrt(_total(self.space, architecture, self.errors.base**2, *squares))


def _total(space: Space, architecture: Architecture, base: float, depth: Depths, block: Ragged) -> float:
    total = base
    for s, choice in enumerate(architecture.choices):
        for b, c in enumerate(choice):
            total += block[s][b][c]
        total += depth[s][space.stages[s].depths.index(len(choice))]
    return total


def _standard_errors(
    space: Space, base_se: float | None, depth_se: Sequence | None, block_se: Sequence | None
) -> StandardErrors | None:
    if depth_se is None and block_se is None:
        return None
    if depth_se is None or block_se is None:
        raise InputError("standard errors must be given for depths and blocks, or for neither")
    depth = space.require_depths(depth_se, "depth_se")
    base = 0.0 if base_se is None else float(base_se)
    if not (0 <= base < math.inf) or min(min(row) for row in depth) < 0:
        raise InputError("standard errors must be finite and not negative")
    return StandardErrors(base, depth, space.require_blocks(block_se, "block_se", minimum=0.0))


def _squares(values: Any) -> Any:
    return tuple(_squares(v) for v in values) if isinstance(values, tuple) else values * values


def _lists(values: Any) -> Any:
    return [_lists(v) for v in values] if isinstance(values, tuple) else values
