"""From a part's geometry to its operators, and from parts to a whole network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import onnx

from deploynas.errors import InputError
from deploynas.graph.quantized import QuantizedWriter, Ranges
from deploynas.graph.writer import OPSET, GraphWriter, Tensor, Weights
from deploynas.space import Architecture, Block, Head, Part, Separable, Space, Stem
from deploynas.space.notation import to_text

INPUT = "input"
OUTPUT = "logits"
PRECISIONS = ("fp32", "int8")


def network(
    space: Space,
    architecture: Architecture,
    weights: Mapping[str, np.ndarray] | None = None,
    batch: int | None = 1,
    *,
    precision: str = "fp32",
    ranges: Ranges | None = None,
    per_channel: bool = True,
    opset: int = OPSET,
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A whole network; `batch=None` leaves the batch to the caller of the model.

    `weights` maps the names of `weight_shapes` to arrays with batch norm folded; without it they are random.
    `precision="int8"` writes a quantised graph; `ranges` then maps tensor names to (low, high), and weights
    have a scale an output channel or, with `per_channel=False`, one a tensor.
    """
    metadata = {
        "space": space.name,
        "space_hash": space.hash,
        "architecture": to_text(architecture),
        **(metadata or {}),
    }
    parts = space.parts(architecture)
    return onnx.ModelProto.FromString(_model(parts, weights, batch, precision, ranges, opset, metadata, per_channel))


def block(
    space: Space,
    s: int,
    b: int,
    c: int,
    weights: Mapping[str, np.ndarray] | None = None,
    batch: int | None = 1,
    *,
    precision: str = "fp32",
) -> onnx.ModelProto:
    """Block b of stage s with configuration c (all counted from 0), alone."""
    return part(space.block(s, b, c), weights, batch, precision=precision)


def part(
    geometry: Part,
    weights: Mapping[str, np.ndarray] | None = None,
    batch: int | None = 1,
    *,
    precision: str = "fp32",
    name: str = "part",
) -> onnx.ModelProto:
    """Any part of a network, alone."""
    return onnx.ModelProto.FromString(_model([(name, geometry)], weights, batch, precision))


def random_bytes(parts: Sequence[tuple[str, Part]], batch: int | None = 1, *, precision: str = "fp32") -> bytes:
    """Named parts, one after the other, with random weights; what a runtime loads, and faster than the message."""
    return _model(parts, None, batch, precision)


def weight_shapes(space: Space, architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """The name and shape of every array that `network` asks for."""
    shapes: dict[str, tuple[int, ...]] = {}

    def record(name: str, shape: tuple[int, ...]) -> np.ndarray:
        shapes[name] = shape
        return np.empty(0, np.float32)

    _write(GraphWriter(record), space.parts(architecture))
    return shapes


def _model(
    parts: Sequence[tuple[str, Part]],
    weights: Mapping[str, np.ndarray] | None,
    batch: int | None,
    precision: str,
    ranges: Ranges | None = None,
    opset: int = OPSET,
    metadata: Mapping[str, str] | None = None,
    per_channel: bool = True,
) -> bytes:
    if batch is not None and batch < 1:
        raise InputError(f"batch must be at least 1, got {batch}")
    if opset < OPSET:
        raise InputError(f"opset must be at least {OPSET}, got {opset}")
    if precision not in PRECISIONS:
        raise InputError(f"no precision `{precision}`", hint=f"one of {', '.join(PRECISIONS)}")
    source = _random_weights if weights is None else _given_weights(weights)
    writer = GraphWriter(source) if precision == "fp32" else QuantizedWriter(source, ranges, per_channel)
    x, y = _write(writer, parts)
    return writer.model(x, y, batch, opset, metadata or {})


def _write(writer: GraphWriter, parts: Sequence[tuple[str, Part]]) -> tuple[Tensor, Tensor]:
    first = parts[0][1]
    x = y = Tensor(INPUT, first.in_channels, first.height, first.width)
    for name, geometry in parts:
        if isinstance(geometry, Stem):
            y = writer.conv(
                f"{name}/conv", y, geometry.out_channels, 3, geometry.stride, activation=geometry.activation
            )
        elif isinstance(geometry, Separable):
            y = _separable(writer, name, y, geometry)
        elif isinstance(geometry, Block):
            y = _inverted_residual(writer, name, y, geometry)
        else:
            y = _head(writer, name, y, geometry)
    return x, writer.finish(y, OUTPUT)


def _separable(writer: GraphWriter, name: str, x: Tensor, part: Separable) -> Tensor:
    y = writer.conv(
        f"{name}/depthwise",
        x,
        part.in_channels,
        part.kernel,
        part.stride,
        depthwise=True,
        activation=part.activation,
    )
    y = writer.conv(f"{name}/project", y, part.out_channels)
    return writer.add(f"{name}/add", x, y) if part.residual else y


def _inverted_residual(writer: GraphWriter, name: str, x: Tensor, part: Block) -> Tensor:
    y = writer.conv(f"{name}/expand", x, part.mid_channels, activation=part.activation)
    y = writer.conv(
        f"{name}/depthwise",
        y,
        part.mid_channels,
        part.kernel,
        part.stride,
        depthwise=True,
        activation=part.activation,
    )
    if part.se_channels:
        gate = writer.global_pool(f"{name}/se/pool", y)
        gate = writer.conv(f"{name}/se/reduce", gate, part.se_channels, activation="relu")
        gate = writer.conv(f"{name}/se/expand", gate, part.mid_channels, activation="hard_sigmoid")
        y = writer.scale(f"{name}/se/scale", y, gate)
    y = writer.conv(f"{name}/project", y, part.out_channels)
    return writer.add(f"{name}/add", x, y) if part.residual else y


def _head(writer: GraphWriter, name: str, x: Tensor, part: Head) -> Tensor:
    y = writer.conv(f"{name}/features", x, part.features, activation=part.activation)
    y = writer.flatten(f"{name}/flatten", writer.global_pool(f"{name}/pool", y))
    if part.hidden:
        # a matrix product, not a 1x1 convolution: 1.7 times faster at batch 8 on CPU
        y = writer.linear(f"{name}/hidden", y, part.hidden, activation=part.activation)
    return writer.linear(f"{name}/classifier", y, part.classes)


def _given_weights(weights: Mapping[str, np.ndarray]) -> Weights:
    def find(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in weights:
            raise InputError(f"the weights have no `{name}`")
        value = np.asarray(weights[name], np.float32)
        if value.shape != shape:
            raise InputError(f"weight `{name}` must have shape {shape}, got {value.shape}")
        return value

    return find


def _random_weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return _scaled_noise(shape)


@cache
def _noise() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)


@cache  # a space has some hundred shapes
def _scaled_noise(shape: tuple[int, ...]) -> np.ndarray:
    """He-scaled noise, the same for all weights of a shape: latency needs plausible numbers, not independent ones."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    fan_in = int(np.prod(shape[1:]))
    return np.resize(_noise(), shape) * np.float32(np.sqrt(2 / fan_in))
