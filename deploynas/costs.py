"""What an architecture costs on any machine: parameters, MACs, bytes of weights, peak activation memory.

Parameters count as timm does (batch norm unfolded); weight bytes are those of the exported fp32 file (batch norm
folded). All are for one image. Peak memory assumes that an operator's inputs and outputs, and a pending
shortcut, are alive while it runs, and that activations work in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from deploynas.errors import InputError
from deploynas.space import Architecture, Block, Head, Part, Separable, Space, Stem

FLOAT_BYTES = 4
ADDITIVE = ("params", "macs", "size_bytes")
RESOURCES = (*ADDITIVE, "peak_memory_bytes")


@dataclass(frozen=True)
class Costs:
    """The costs of one architecture, or of one part of it."""

    params: int
    macs: int
    size_bytes: int
    peak_memory_bytes: int

    @classmethod
    def of(cls, space: Space, architecture: Architecture) -> Costs:
        return combine(*(part_costs(part) for _, part in space.parts(architecture)))


def combine(*costs: Costs) -> Costs:
    """Parts of one network: everything adds up but the peak, which is a maximum."""
    return Costs(
        params=sum(c.params for c in costs),
        macs=sum(c.macs for c in costs),
        size_bytes=sum(c.size_bytes for c in costs),
        peak_memory_bytes=max(c.peak_memory_bytes for c in costs),
    )


def resource_table(space: Space, resource: str) -> tuple[float, list[list[list[float]]]]:
    """(fixed parts, [stage][block][configuration]) of one resource, in the form of a latency table."""
    if resource not in RESOURCES:
        raise InputError(f"no resource `{resource}`", hint=f"one of {', '.join(RESOURCES)}, or a latency table")
    fixed = getattr(combine(*(part_costs(part) for _, part in space.fixed_parts())), resource)
    blocks = [
        [
            [float(getattr(part_costs(space.block(s, b, c)), resource)) for c in range(len(stage.configs))]
            for b in range(stage.max_depth)
        ]
        for s, stage in enumerate(space.stages)
    ]
    return float(fixed), blocks


@lru_cache(maxsize=4096)
def part_costs(part: Part) -> Costs:
    if isinstance(part, Stem):
        return _stem(part)
    if isinstance(part, Separable):
        return _separable(part)
    if isinstance(part, Block):
        return _block(part)
    return _head(part)


class _Tally:
    """Adds up operators, and remembers the largest set of tensors alive at once."""

    def __init__(self) -> None:
        self.params = self.macs = self.folded = self.peak = 0

    def conv(self, weights: int, outputs: int, pixels: int, *, norm: bool, bias: bool = False) -> None:
        self.params += weights + (2 * outputs if norm else 0) + (outputs if bias else 0)
        self.folded += weights + outputs  # folding turns every batch norm into a bias
        self.macs += weights * pixels

    def alive(self, *elements: int) -> None:
        self.peak = max(self.peak, sum(elements))

    def costs(self) -> Costs:
        return Costs(self.params, self.macs, self.folded * FLOAT_BYTES, self.peak * FLOAT_BYTES)


def _half(size: int, stride: int) -> int:
    return -(-size // stride)


def _stem(part: Stem) -> Costs:
    tally = _Tally()
    pixels = _half(part.height, part.stride) * _half(part.width, part.stride)
    tally.conv(9 * part.in_channels * part.out_channels, part.out_channels, pixels, norm=True)
    tally.alive(part.in_channels * part.height * part.width, part.out_channels * pixels)
    return tally.costs()


def _separable(part: Separable) -> Costs:
    tally = _Tally()
    entering = part.in_channels * part.height * part.width
    pixels = _half(part.height, part.stride) * _half(part.width, part.stride)
    shortcut = entering if part.residual else 0
    tally.conv(part.kernel**2 * part.in_channels, part.in_channels, pixels, norm=True)
    tally.alive(entering, part.in_channels * pixels)
    tally.conv(part.in_channels * part.out_channels, part.out_channels, pixels, norm=True)
    tally.alive(shortcut, part.in_channels * pixels, part.out_channels * pixels)
    return tally.costs()


def _block(part: Block) -> Costs:
    tally = _Tally()
    pixels_in = part.height * part.width
    pixels = _half(part.height, part.stride) * _half(part.width, part.stride)
    entering, mid, leaving = (
        part.in_channels * pixels_in,
        part.mid_channels * pixels,
        part.out_channels * pixels,
    )
    shortcut = entering if part.residual else 0
    tally.conv(part.in_channels * part.mid_channels, part.mid_channels, pixels_in, norm=True)
    tally.alive(entering, part.mid_channels * pixels_in)
    tally.conv(part.kernel**2 * part.mid_channels, part.mid_channels, pixels, norm=True)
    tally.alive(shortcut, part.mid_channels * pixels_in, mid)
    if part.se_channels:
        tally.conv(part.mid_channels * part.se_channels, part.se_channels, 1, norm=False, bias=True)
        tally.conv(part.se_channels * part.mid_channels, part.mid_channels, 1, norm=False, bias=True)
        tally.alive(shortcut, mid, mid)  # the gated tensor is a new one
    tally.conv(part.mid_channels * part.out_channels, part.out_channels, pixels, norm=True)
    tally.alive(shortcut, mid, leaving)
    return tally.costs()


def _head(part: Head) -> Costs:
    tally = _Tally()
    pixels = part.height * part.width
    tally.conv(part.in_channels * part.features, part.features, pixels, norm=True)
    tally.alive(part.in_channels * pixels, part.features * pixels)
    tally.alive(part.features * pixels, part.features)
    features = part.features
    if part.hidden:
        tally.conv(features * part.hidden, part.hidden, 1, norm=False, bias=True)
        features = part.hidden
    tally.conv(features * part.classes, part.classes, 1, norm=False, bias=True)
    return tally.costs()
