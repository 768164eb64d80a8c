"""Arithmetic of channels and image sizes, as timm does it."""

from __future__ import annotations


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round channels as timm does: to a multiple of 8, never more than 10 % down."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def strided(size: int, stride: int) -> int:
    return -(-size // stride)  # padding kernel // 2 with an odd kernel
