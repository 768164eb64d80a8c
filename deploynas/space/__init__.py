"""What can be built: spaces, their decisions, and the architectures that result."""

from __future__ import annotations

from deploynas.space.architecture import Architecture, part_name
from deploynas.space.decisions import Choice, Decisions, Depths, Group, Option, Ragged
from deploynas.space.structure import PRESETS, Space, Stage

__all__ = [
    "PRESETS",
    "Architecture",
    "Choice",
    "Decisions",
    "Depths",
    "Group",
    "Option",
    "Ragged",
    "Space",
    "Stage",
    "part_name",
]
