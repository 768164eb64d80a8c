"""The forms in which a network may be written, told apart by how the text begins and what it lists.

The notation of the kind of space (for stages timm's, and Once-for-all's JSON), and our own numbers: `[[0, 3], [1, 1]]`
are choices, an index of a configuration for every block; `[1, 0, 0, 3, 2]` is a row of decisions, first the index of
every stage's depth and then of every block that there might be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from deploynas.parsing import literal_of

if TYPE_CHECKING:
    from deploynas.space import Architecture, Space


def read(text: str, space: Space) -> Architecture:
    """A network of the space, in any of the forms."""
    text = text.strip()
    numbers = _numbers(text) if text.startswith("[") else None
    if isinstance(numbers, np.ndarray):
        space.decisions.require_rows(numbers)
        return space.architectures(numbers)[0]
    if numbers is not None:
        return space.architecture(numbers)
    return space.from_text(text)


def _numbers(text: str) -> np.ndarray | list[list[int]] | None:
    """One row of decisions, or choices; None if the list is neither."""
    try:
        value = literal_of(text)
    except ValueError:
        return None
    if not isinstance(value, list) or not value:
        return None
    if _whole(value):
        return np.array([value], dtype=np.int64)
    if all(isinstance(stage, list) and _whole(stage) for stage in value) and any(value):
        return value
    return None


def _whole(values: list[object]) -> bool:
    """Whether all are whole numbers, of a size that an index may have."""
    return all(isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**31 for v in values)
