"""The kinds of block, without torch: configurations, geometry, operators."""

from __future__ import annotations

from deploynas.blocks.fixed import Head, Separable, Stem
from deploynas.blocks.inverted_residual import Block, BlockConfig

Part = Stem | Separable | Block | Head

__all__ = ["Block", "BlockConfig", "Head", "Part", "Separable", "Stem"]
