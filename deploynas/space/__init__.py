"""What can be built: spaces, their decisions, and the architectures that result."""

from __future__ import annotations

from deploynas.space.architecture import Architecture, part_name
from deploynas.space.structure import PRESETS, Ragged, Space, Stage

__all__ = ["PRESETS", "Architecture", "Ragged", "Space", "Stage", "part_name"]
