"""What can be built: spaces, their decisions, and the architectures that result."""

from __future__ import annotations

from deploynas.blocks import Block, BlockConfig, Head, Part, Separable, Stem
from deploynas.blocks.geometry import make_divisible
from deploynas.space.architecture import Architecture, part_name
from deploynas.space.structure import PRESETS, Ragged, Space, Stage

__all__ = [
    "PRESETS",
    "Architecture",
    "Block",
    "BlockConfig",
    "Head",
    "Part",
    "Ragged",
    "Separable",
    "Space",
    "Stage",
    "Stem",
    "make_divisible",
    "part_name",
]
