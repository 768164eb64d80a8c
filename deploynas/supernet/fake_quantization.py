"""Values rounded to 8 bits and read back, as `QuantizeLinear` and `DequantizeLinear` do, with gradients.

The forward pass has the bits of the graph. Backward, rounding passes gradients straight through; what is clipped has
none, and moves the range instead. Ranges learn as in LSQ+ (Bhalgat et al. 2020), but by the logarithm of how far an
edge has moved, so that a step is relative whatever the size of the values is, and zero stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from deploynas.errors import InputError
from deploynas.quantization import Quantization

LEVELS = 255
SMALLEST_WIDTH = 1e-6  # of a range; as the graph has it
SMALLEST_WEIGHT = 1e-8  # as the graph has it


class _Rounded(torch.autograd.Function):
    """x in steps of `scale`, clipped to the integers from `lowest` on, that `zero` is the zero of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero: Tensor, lowest: int) -> Tensor:
        ctx.save_for_backward(x, scale, zero)
        ctx.lowest = lowest
        steps = torch.round(x / scale)  # half to even, as ONNX wants it
        return steps.clamp_(lowest - zero, lowest + LEVELS - zero).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, scale, zero = ctx.saved_tensors
        (gradient,) = gradients
        exact = x / scale
        steps = torch.round(exact)
        clipped = steps.clamp(ctx.lowest - zero, ctx.lowest + LEVELS - zero)
        inside = steps == clipped
        passed = gradient * inside
        if not ctx.needs_input_grad[1]:
            return passed, None, None, None
        # inside, a wider step moves a value by its rounding error; at an edge, the edge moves it
        of_scale = torch.where(inside, steps - exact, clipped)
        of_zero = -scale * (gradient.sum() - passed.sum())
        return passed, (gradient * of_scale).sum(), of_zero, None


class _Through(torch.autograd.Function):
    """What x was rounded to; gradients are those of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rounded: Tensor) -> Tensor:
        return rounded

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def rounded_values(x: Tensor, scale: Tensor, zero: Tensor, lowest: int) -> Tensor:
    return _Rounded.apply(x, scale, zero, lowest)


def rounded_weight(weight: Tensor, quantization: Quantization) -> tuple[Tensor, Tensor]:
    """A weight in steps of its scales, and these: one for each output channel, or all the same."""
    with torch.no_grad():
        largest = weight.detach().flatten(1).abs().amax(1).clamp(min=SMALLEST_WEIGHT)
        scale = largest / quantization.largest_weight
        if not quantization.per_channel:
            scale = scale.max().expand_as(scale)
        column = scale.view(-1, *[1] * (weight.dim() - 1))
        rounded = torch.round(weight / column) * column
    return _Through.apply(weight, rounded), scale


def rounded_bias(bias: Tensor, scale: Tensor) -> Tensor:
    """A bias in 32-bit integers of these scales; saturated as in the graph."""
    limits = torch.iinfo(torch.int32)
    with torch.no_grad():
        steps = torch.round((bias / scale).double()).clamp(limits.min, limits.max)
        rounded = steps.float() * scale
    return _Through.apply(bias, rounded)


def scale_and_zero(low: Tensor, high: Tensor, quantization: Quantization) -> tuple[Tensor, Tensor]:
    """`Quantization.step` of a range in double precision, with gradients: scale and zero point."""
    high = torch.maximum(high, low.detach() + SMALLEST_WIDTH)
    if quantization.symmetric:
        scale = torch.maximum(-low, high) / 127
        return scale, torch.full_like(scale, quantization.lowest + 128)
    scale = (high - low) / LEVELS
    exact = -low / scale
    return scale, quantization.lowest + exact + (torch.round(exact) - exact).detach()


class LearnedRanges(nn.Module):
    """(low, high) of values by name, as calibration found them, and how far they have moved since."""

    low: Tensor
    high: Tensor

    def __init__(self, ranges: Mapping[str, tuple[float, float]], learned: bool = True) -> None:
        super().__init__()
        self.places = {name: place for place, name in enumerate(ranges)}
        edges = torch.tensor(list(ranges.values()), dtype=torch.float64).reshape(-1, 2)
        self.register_buffer("low", edges[:, 0].clamp(max=0.0).clone())
        self.register_buffer("high", edges[:, 1].clamp(min=0.0).clone())
        # vectors, since optimizers pull matrices towards zero
        self.low_move = nn.Parameter(torch.zeros(len(edges)), requires_grad=learned)
        self.high_move = nn.Parameter(torch.zeros(len(edges)), requires_grad=learned)

    def edges(self) -> tuple[Tensor, Tensor]:
        """Of all values, in double precision, as ranges are in files."""
        return self.low * self.low_move.double().exp(), self.high * self.high_move.double().exp()

    def place(self, name: str) -> int:
        if name not in self.places:
            raise InputError(f"calibration has no range for `{name}`")
        return self.places[name]

    @torch.no_grad()
    def by_name(self) -> dict[str, tuple[float, float]]:
        low, high = (edge.tolist() for edge in self.edges())
        return {name: (low[place], high[place]) for name, place in self.places.items()}
