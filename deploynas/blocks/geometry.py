"""Arithmetic of channels and image sizes as timm does it, and the names of activations there."""

from __future__ import annotations

from typing import Literal

from deploynas.errors import InputError

Activation = Literal["relu", "relu6", "hard_swish", "swish"]
_TIMM_CODES: dict[str, str] = {"relu": "re", "relu6": "r6", "hard_swish": "hs", "swish": "sw"}


def timm_code(activation: str) -> str:
    """What timm's notation calls an activation."""
    if activation not in _TIMM_CODES:
        raise InputError(f"no activation `{activation}`", hint=f"one of {', '.join(_TIMM_CODES)}")
    return _TIMM_CODES[activation]


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round channels as timm does: to a multiple of 8, never more than 10 % down."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def as_written(ratio: float) -> float:
    """With the digits that timm's notation is given, so that it reads back as the same number."""
    return float(f"{ratio:g}")


def strided(size: int, stride: int) -> int:
    return -(-size // stride)  # padding kernel // 2 with an odd kernel
