"""What can be built: spaces, their decisions, and the architectures that result."""

from __future__ import annotations

from deploynas.space.architecture import Architecture, part_name
from deploynas.space.cells import CellSpace
from deploynas.space.decisions import Choice, Decisions, Depths, Group, Option, Ragged
from deploynas.space.space import PRESETS, Space
from deploynas.space.structure import Stage, StageSpace

__all__ = [
    "PRESETS",
    "Architecture",
    "CellSpace",
    "Choice",
    "Decisions",
    "Depths",
    "Group",
    "Option",
    "Ragged",
    "Space",
    "Stage",
    "StageSpace",
    "part_name",
]
