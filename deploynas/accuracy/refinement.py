"""An estimator brought up to date with whole networks that were measured where the search goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.errors import InputError
from deploynas.space import Architecture


@dataclass(frozen=True)
class MeasuredNetwork:
    """A sub-network and its one-shot accuracy, batch norm recalibrated."""

    architecture: Architecture
    accuracy: float  # 0..1
    se: float  # of the images that it was measured on


def refine(estimator: StoredEstimator, measured: Sequence[MeasuredNetwork]) -> StoredEstimator:
    """The estimator of `estimate`, updated with all networks measured so far; of the same kind."""
    raise InputError("not yet")
