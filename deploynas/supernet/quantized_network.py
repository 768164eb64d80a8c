"""A network that computes in torch what its 8-bit ONNX graph computes, and that can be trained so.

Parts write themselves against `Operators`, here with torch at every forward pass; its parameters are the folded
weights that the graph is written from. What is rounded, where, and with which scale is as in `graph/quantized.py`: a
change there is a change here, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from deploynas.blocks import Part
from deploynas.blocks.geometry import strided
from deploynas.blocks.operators import Tensor
from deploynas.errors import InputError
from deploynas.quantization import Quantization
from deploynas.supernet.fake_quantization import (
    LEVELS,
    LearnedRanges,
    rounded_bias,
    rounded_values,
    rounded_weight,
    scale_and_zero,
)

INPUT, OUTPUT = "input", "logits"  # as the graph calls them
GATE = (0.0, 1.0)


class QuantizedNetwork(nn.Module):
    """Parts with folded weights, in 8 bits.

    `ranges`: of every value of the fp32 graph, by name. `biased_gates`: the hard sigmoid of a gate is a bias of the
    convolution before it (`OperatorForms.hard_sigmoid`), which rounds once less.
    """

    def __init__(
        self,
        parts: Sequence[tuple[str, Part]],
        weights: Mapping[str, np.ndarray],
        ranges: Mapping[str, tuple[float, float]],
        quantization: Quantization,
        learned_ranges: bool = True,
        biased_gates: bool = False,
    ) -> None:
        super().__init__()
        self.parts, self.quantization, self.biased_gates = tuple(parts), quantization, biased_gates
        self.weights = nn.ParameterDict({name: nn.Parameter(torch.tensor(value)) for name, value in weights.items()})
        self.ranges = LearnedRanges(ranges, learned_ranges)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.parts[0][1]
        writer = _Rounding(self)
        y: Tensor = Computed(INPUT, first.in_channels, first.height, first.width, numbers=images)
        for name, part in self.parts:
            y = part.write(writer, name, y)
        return writer.finish(_valued(y))

    def folded_weights(self) -> dict[str, np.ndarray]:
        """What the graph is written from."""
        return {name: value.detach().cpu().contiguous().numpy() for name, value in self.weights.items()}


@dataclass(frozen=True, eq=False)
class Computed(Tensor):
    """A value of the network with its numbers; `scale` is that of its integers, None while it is in float."""

    numbers: torch.Tensor = field(kw_only=True)
    scale: torch.Tensor | None = None

    def with_numbers(self, numbers: torch.Tensor, name: str | None = None) -> Computed:
        """Another value of the same shape, in float."""
        return replace(self, name=name or self.name, numbers=numbers, scale=None)


def _valued(x: Tensor) -> Computed:
    """Parts hand on what they were given."""
    assert isinstance(x, Computed)
    return x


class _Rounding:
    """`Operators` that compute at once, for one forward pass."""

    def __init__(self, network: QuantizedNetwork) -> None:
        self.network, self.quantization = network, network.quantization
        edges = network.ranges.edges()
        scales, zeros = scale_and_zero(*edges, self.quantization)
        self.scales, self.zero_points = scales.float().unbind(), zeros.float().unbind()
        low, high = torch.tensor(GATE, dtype=torch.float64, device=edges[0].device)
        scale, zero = scale_and_zero(low, high, self.quantization)
        self.gate = (scale.float(), zero.float())

    def conv(
        self,
        name: str,
        x: Tensor,
        out_channels: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        depthwise: bool = False,
        activation: str | None = None,
        norm: bool = True,
        bias: bool = True,
    ) -> Tensor:
        x = self._entering(x)
        y = F.conv2d(
            x.numbers, *self._parameters(name, x, bias), stride, kernel // 2, groups=out_channels if depthwise else 1
        )
        out = Computed(name, out_channels, strided(x.height, stride), strided(x.width, stride), numbers=y)
        if activation == "hard_sigmoid" and self.network.biased_gates and bias:
            return self._biased_gate(out)
        return self._activated(out, activation)

    def linear(self, name: str, x: Tensor, outputs: int, *, activation: str | None = None, bias: bool = True) -> Tensor:
        x = _valued(x)
        # before the vector is made it is a pixel
        y = Computed(name, outputs, numbers=F.linear(x.numbers.flatten(1), *self._parameters(name, x, bias)))
        return self._activated(y, activation) if activation else y

    def relu(self, name: str, x: Tensor) -> Tensor:
        x = self._entering(x)
        return self._quantized(x.with_numbers(F.relu(x.numbers), name))

    def norm(self, name: str, x: Tensor, *, activation: str | None = None) -> Tensor:
        return self.conv(name, x, x.channels, depthwise=True, activation=activation)

    def average_pool(self, name: str, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        x = self._entering(x)
        y = F.avg_pool2d(x.numbers, kernel, stride, (kernel - 1) // 2, count_include_pad=False)
        return self._quantized(
            Computed(name, x.channels, strided(x.height, stride), strided(x.width, stride), numbers=y)
        )

    def global_pool(self, name: str, x: Tensor) -> Tensor:
        x = _valued(x)
        return self._quantized(Computed(name, x.channels, numbers=x.numbers.mean((2, 3), keepdim=True)))

    def flatten(self, name: str, x: Tensor) -> Tensor:
        # the graph rounds once more, with the scale that the value has
        x = _valued(x)
        channels = x.channels * x.height * x.width
        return Computed(name, channels, scale=x.scale, numbers=x.numbers.flatten(1))

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        x = self._entering(x)
        return self._quantized(x.with_numbers(x.numbers + _valued(y).numbers, name))

    def zeros(self, name: str, x: Tensor) -> Tensor:
        x = self._entering(x)
        return replace(x, name=name, numbers=torch.zeros_like(x.numbers), scale=self.gate[0])

    def scale(self, name: str, x: Tensor, gate: Tensor) -> Tensor:
        x = _valued(x)
        return self._quantized(x.with_numbers(x.numbers * _valued(gate).numbers, name))

    def finish(self, y: Computed) -> torch.Tensor:
        if self.quantization.logits == "8-bit" and y.scale is None:
            y = self._quantized(y, range_of=OUTPUT)
        return y.numbers

    def _activated(self, x: Computed, activation: str | None) -> Computed:
        name = f"{x.name}/act"
        match activation:
            case None:
                return self._quantized(x)
            case "relu":
                return self._quantized(x.with_numbers(F.relu(x.numbers), name))
            case "relu6":
                return self._quantized(x.with_numbers(F.relu6(x.numbers), name))
            case "swish":
                x = self._quantized(x)
                gate = self._gate(x.with_numbers(torch.sigmoid(x.numbers), f"{name}/gate"))
                return self._quantized(x.with_numbers(x.numbers * gate.numbers, name))
            case "hard_swish" | "hard_sigmoid":
                return self._hard(self._quantized(x), name, activation)
            case _:
                raise InputError(f"no activation `{activation}` in 8 bits")

    def _hard(self, x: Computed, name: str, activation: str) -> Computed:
        if self.quantization.hard_activations == "operator":
            if activation == "hard_sigmoid":
                return self._gate(x.with_numbers(F.hardsigmoid(x.numbers), name))
            return self._quantized(x.with_numbers(F.hardswish(x.numbers), name))
        # the addition saturates by being quantised
        half = np.float32(0.5 / LEVELS) * np.float32(LEVELS)
        gate = self._gate(x.with_numbers(x.numbers / 6 + float(half), f"{name}/gate"))
        if activation == "hard_sigmoid":
            return gate
        return self._quantized(x.with_numbers(x.numbers * gate.numbers, name))

    def _biased_gate(self, x: Computed) -> Computed:
        """x + 3 in steps of 6 / 255 from 0 on; the same integers in steps of 1 / 255 are the gate."""
        lowest = x.numbers.new_tensor(float(self.quantization.lowest))
        wide = x.numbers.new_tensor(6 / LEVELS)
        y = rounded_values(x.numbers + 3, wide, lowest, self.quantization.lowest) / 6
        return replace(x, name=f"{x.name}/act/gate", numbers=y, scale=self.gate[0])

    def _entering(self, x: Tensor) -> Computed:
        """The network's own input comes in float."""
        x = _valued(x)
        return x if x.scale is not None else self._quantized(x)

    def _quantized(self, x: Computed, range_of: str | None = None) -> Computed:
        place = self.network.ranges.place(range_of or x.name)
        return self._rounded(x, self.scales[place], self.zero_points[place])

    def _gate(self, x: Computed) -> Computed:
        return self._rounded(x, *self.gate)

    def _rounded(self, x: Computed, scale: torch.Tensor, zero: torch.Tensor) -> Computed:
        return replace(x, numbers=rounded_values(x.numbers, scale, zero, self.quantization.lowest), scale=scale)

    def _parameters(self, name: str, x: Computed, bias: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias of the operator that reads x, as the graph has them."""
        weight, scale = rounded_weight(self.network.weights[f"{name}/weight"], self.quantization)
        if not bias:
            return weight, None
        value = self.network.weights[f"{name}/bias"]
        if self.quantization.bias == "float":
            return weight, value
        assert x.scale is not None
        return weight, rounded_bias(value, scale * x.scale.detach())
