"""Kinds of block and the fixed parts of a network, without torch: choices, geometry, operators, notation, words."""

from __future__ import annotations

from deploynas.blocks.fixed import DepthwiseSeparable, Head, Stem
from deploynas.blocks.kind import BlockConfig
from deploynas.blocks.part import Part, Place
from deploynas.blocks.registry import KINDS, kind_of

__all__ = ["KINDS", "BlockConfig", "DepthwiseSeparable", "Head", "Part", "Place", "Stem", "kind_of"]
