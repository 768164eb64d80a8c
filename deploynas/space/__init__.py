"""What can be built: spaces, their decisions, and the architectures that result."""

from __future__ import annotations

from deploynas.blocks import Block, BlockConfig, Head, Part, Separable, Stem
from deploynas.blocks.geometry import make_divisible
from deploynas.space.architecture import Architecture, part_name
from deploynas.space.decisions import Choice, Decisions, Depths, Group, Option, Ragged
from deploynas.space.structure import PRESETS, Space, Stage

__all__ = [
    "PRESETS",
    "Architecture",
    "Block",
    "BlockConfig",
    "Choice",
    "Decisions",
    "Depths",
    "Group",
    "Head",
    "Option",
    "Part",
    "Ragged",
    "Separable",
    "Space",
    "Stage",
    "Stem",
    "make_divisible",
    "part_name",
]
