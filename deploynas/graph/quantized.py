"""Writes the same network in 8 bits, as Q/DQ pairs: weights signed, activations as `Quantization` says.

The runtime turns every `DequantizeLinear -> op -> QuantizeLinear` into one integer operator. On CPUs the hard
activations are written so that nothing is left in float: quantising to [0, 1] saturates, so `Add(x / 6, 1/2)` followed
by `QuantizeLinear` *is* the hard sigmoid, and x / 6 is x read with a sixth of its scale. In blocks with hard swish
that was 22 % faster than the operator in float between two conversions. A runtime that gives each tensor one scale
computes something else from that, so `hard_activations: operator` has the operator.

`supernet/quantized_network.py` computes the same in torch, to train it: what is rounded here is rounded there.

Parts can be left in float: one of them reads what the part before it left, through its `DequantizeLinear`, and the next
part in 8 bits quantises what it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from deploynas.blocks.operators import Tensor
from deploynas.errors import InputError
from deploynas.graph.operator_forms import DEFAULT_FORMS, OperatorForms
from deploynas.graph.writer import GraphWriter, WeightSource
from deploynas.quantization import FOR_CPUS, Quantization

Ranges = Mapping[str, tuple[float, float]]

_GATE = (0.0, 1.0)
# without calibration only the speed matters, and that does not depend on the range
_PLAUSIBLE = {"linear": (-6.0, 6.0), "relu": (0.0, 6.0), "relu6": (0.0, 6.0)}


class QuantizedWriter(GraphWriter):
    """A `GraphWriter` whose values are read through `DequantizeLinear`.

    `ranges` maps the name of every activation (as in the fp32 graph) to its (low, high); None for plausible ones.
    `in_float`: the names of parts that stay as they are; `float_forms` of their operators.
    """

    def __init__(
        self,
        weights: WeightSource,
        ranges: Ranges | None = None,
        quantization: Quantization = FOR_CPUS,
        forms: OperatorForms = DEFAULT_FORMS,
        in_float: Collection[str] = (),
        float_forms: OperatorForms = DEFAULT_FORMS,
    ) -> None:
        super().__init__(weights, forms)
        self.ranges = ranges
        self.quantization = quantization
        self._integer_forms, self._float_forms = forms, float_forms
        self._in_float, self._floats = frozenset(in_float), False
        self._scales: dict[str, float] = {}  # of each value, by the name it is read under
        self._read_names: set[str] = set()

    def enter(self, part: str) -> None:
        self._floats = part in self._in_float
        self.forms = self._float_forms if self._floats else self._integer_forms

    def conv(self, name: str, x: Tensor, out_channels: int, kernel: int = 1, stride: int = 1, **options: Any) -> Tensor:
        return super().conv(name, self._entering(x), out_channels, kernel, stride, **options)

    def activate(self, x: Tensor, activation: str | None) -> Tensor:
        if self._floats:
            return super().activate(x, activation)
        if activation in (None, "relu", "relu6"):
            # fused: the quantisation after them saturates where they would clip
            return self._quantized(super().activate(x, activation), activation or "linear")
        if activation not in ("swish", "hard_swish", "hard_sigmoid"):
            raise InputError(f"no activation `{activation}` in 8 bits")
        if activation == "hard_sigmoid" and self.forms.hard_sigmoid == "bias" and f"{x.name}/bias" in self.initializers:
            return self._shifted_gate(x)
        self._quantize(x, "linear")
        name = f"{x.name}/act"
        if activation != "swish" and self.quantization.hard_activations == "operator":
            self._activation(name, self._read(x).name, activation)
            kind = "gate" if activation == "hard_sigmoid" else "linear"
            return self._quantized(Tensor(name, x.channels, x.height, x.width), kind)
        gate = Tensor(f"{name}/gate", x.channels, x.height, x.width)
        if activation == "swish":
            self._node("Sigmoid", gate.name, [self._read(x).name])
        else:
            self._node("Add", gate.name, [self._sixth(x), self._half()])
        gate = self._quantized(gate, "gate")
        if activation == "hard_sigmoid":
            return gate
        self._node("Mul", name, [self._read(x).name, gate.name])
        return self._quantized(Tensor(name, x.channels, x.height, x.width), "linear")

    def _shifted_gate(self, x: Tensor) -> Tensor:
        """The hard sigmoid of what a convolution leaves, as its own quantisation.

        x + 3 in steps of 6 / 255 saturates at 0 and 6; the same bytes in steps of 1 / 255 are the gate.
        """
        bias = f"{x.name}/bias"
        if self.quantization.bias == "float":
            self.initializers[bias] = self.initializers[bias] + np.float32(3)
        else:
            self.initializers[bias] = _int32(self.initializers[bias] + 3 / self.initializers[f"{bias}/scale"])
        zero = self._integer(f"{x.name}/zero", self.quantization.lowest)
        wide = self._constant(f"{x.name}/scale", np.asarray(6 / 255, np.float32))
        self._node("QuantizeLinear", f"{x.name}/quantized", [x.name, wide, zero])
        read = _reading(f"{x.name}/act/gate")
        narrow = self._constant(f"{x.name}/act/gate/scale", np.asarray(1 / 255, np.float32))
        self._node("DequantizeLinear", read, [f"{x.name}/quantized", narrow, zero])
        self._scales[read] = 1 / 255
        return Tensor(read, x.channels, x.height, x.width)

    def relu(self, name: str, x: Tensor) -> Tensor:
        return self._quantized(super().relu(name, self._entering(x)), "relu")

    def zeros(self, name: str, x: Tensor) -> Tensor:
        # any range holds zero; that of a gate does not collapse, as a calibrated one would
        return self._quantized(super().zeros(name, self._entering(x)), "gate")

    def average_pool(self, name: str, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        return self._quantized(super().average_pool(name, self._entering(x), kernel, stride), "linear")

    def global_pool(self, name: str, x: Tensor) -> Tensor:
        return self._quantized(super().global_pool(name, x), "linear")

    def _flatten_now(self, name: str, x: Tensor) -> Tensor:
        y = super()._flatten_now(name, x)
        return self._quantized(y, "linear", range_of=_plain(x.name))

    def _last_is_conv(self) -> bool:
        # an integer convolution leaves 8 bits; logits stay in float where they can
        return self._floats and super()._last_is_conv()

    def finish(self, y: Tensor, name: str) -> Tensor:
        if self.quantization.logits == "8-bit" and y.name not in self._scales and not self._floats:
            y = self._quantized(y, "linear", range_of=name)
        return super().finish(y, name)

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        return self._quantized(super().add(name, self._entering(x), y), "linear")

    def scale(self, name: str, x: Tensor, gate: Tensor) -> Tensor:
        return self._quantized(super().scale(name, x, gate), "linear")

    def _every_pixel(self, name: str, gate: Tensor, x: Tensor) -> Tensor:
        return self._quantized(super()._every_pixel(name, gate, x), "gate")

    def _entering(self, x: Tensor) -> Tensor:
        """What comes in float, as the network's own input does, is quantised."""
        if self._floats or x.name in self._scales:
            return x
        if _reading(x.name) not in self._scales:
            self._quantize(x, "linear")
        return self._read(x)

    def _quantized(self, x: Tensor, kind: str, range_of: str | None = None) -> Tensor:
        """x through a quantisation and back; nothing of it is left once the runtime has fused it."""
        if self._floats:
            return x
        self._quantize(x, kind, range_of)
        return self._read(x)

    def _quantize(self, x: Tensor, kind: str, range_of: str | None = None) -> None:
        low, high = _GATE if kind == "gate" else self._range(range_of or x.name, kind)
        low, high = min(low, 0.0), max(high, 0.0, low + 1e-6)  # zero must be exact: padding is zero
        scale, zero = self.quantization.step(low, high)
        inputs = [
            self._constant(f"{x.name}/scale", np.asarray(scale, np.float32)),
            self._integer(f"{x.name}/zero", zero),
        ]
        self._node("QuantizeLinear", f"{x.name}/quantized", [x.name, *inputs])
        self._scales[_reading(x.name)] = scale

    def _read(self, x: Tensor) -> Tensor:
        name = _reading(x.name)
        if name not in self._read_names:
            self._node("DequantizeLinear", name, [f"{x.name}/quantized", f"{x.name}/scale", f"{x.name}/zero"])
            self._read_names.add(name)
        return Tensor(name, x.channels, x.height, x.width)

    def _range(self, name: str, kind: str) -> tuple[float, float]:
        if self.ranges is None:
            return _PLAUSIBLE[kind]
        if name not in self.ranges:
            raise InputError(f"calibration has no range for `{name}`")
        return self.ranges[name]

    def _sixth(self, x: Tensor) -> str:
        """x / 6, by reading the same bytes with a sixth of the scale."""
        name = f"{x.name}/sixth"
        scale = self._constant(f"{name}/scale", np.asarray(self._scales[_reading(x.name)] / 6, np.float32))
        self._node("DequantizeLinear", name, [f"{x.name}/quantized", scale, f"{x.name}/zero"])
        return name

    def _half(self) -> str:
        if "half" not in self._read_names:
            inputs = [
                self._integer("half/quantized", self.quantization.lowest + 255),
                self._constant("half/scale", np.asarray(0.5 / 255, np.float32)),
                self._integer("half/zero", self.quantization.lowest),
            ]
            self._node("DequantizeLinear", "half", inputs)
            self._read_names.add("half")
        return "half"

    def _parameters(
        self, name: str, shape: tuple[int, ...], x: str, bias: bool = True, stored: tuple[int, ...] | None = None
    ) -> list[str]:
        if self._floats:
            return super()._parameters(name, shape, x, bias, stored)
        rounded, scale = rounded_weight(self.weights(f"{name}/weight", shape), self.quantization)
        zero = self.quantization.weight_zero
        stored_as = (rounded + zero).astype(self.quantization.weights).reshape(stored or shape)
        read = [self._dequantized(f"{name}/weight", stored_as, scale, zero)]
        if bias and self.quantization.bias == "float":
            read.append(self._constant(f"{name}/bias", self.weights(f"{name}/bias", shape[:1])))
        elif bias:
            bias_scale = scale * self._scales[x]
            value = _int32(self.weights(f"{name}/bias", shape[:1]) / bias_scale)
            read.append(self._dequantized(f"{name}/bias", value, bias_scale))
        return read

    def _integer(self, name: str, value: int) -> str:
        """Of the type that activations have."""
        return self._constant(name, np.asarray(value, self.quantization.activations))

    def _dequantized(self, name: str, value: np.ndarray, scale: np.ndarray, zero: int = 0) -> str:
        inputs = [
            self._constant(name, value),
            self._constant(f"{name}/scale", scale.astype(np.float32)),
            self._constant(f"{name}/zero", np.full(scale.shape, zero, value.dtype)),
        ]
        self._node("DequantizeLinear", _reading(name), inputs, axis=0)
        return _reading(name)


def rounded_weight(weight: np.ndarray, quantization: Quantization) -> tuple[np.ndarray, np.ndarray]:
    """As integers around 0, and the scale of each output channel."""
    scale = np.maximum(np.abs(weight.reshape(len(weight), -1)).max(axis=1), 1e-8) / quantization.largest_weight
    if not quantization.per_channel:
        scale = np.full_like(scale, scale.max())
    return np.rint(weight / scale.reshape(-1, *[1] * (weight.ndim - 1))), scale


def _int32(value: np.ndarray) -> np.ndarray:
    """Rounded; saturated where a scale is so small (a range that collapsed) that the value does not fit."""
    limits = np.iinfo(np.int32)
    return np.clip(np.rint(value.astype(np.float64)), limits.min, limits.max).astype(np.int32)


def _reading(name: str) -> str:
    """The name under which a quantised value is read."""
    return f"{name}/dequantized"


def _plain(name: str) -> str:
    """The inverse: the name in the fp32 graph."""
    return name.removesuffix("/dequantized")
