"""From a part's geometry to its operators, and from parts to a whole network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx

from deploynas.blocks import Part
from deploynas.blocks.operators import Tensor
from deploynas.errors import InputError
from deploynas.graph.float16 import Float16Writer
from deploynas.graph.operator_forms import DEFAULT_FORMS, OperatorForms
from deploynas.graph.quantized import QuantizedWriter, Ranges
from deploynas.graph.writer import OPSET, GraphWriter, WeightSource
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.space import Architecture, Space

INPUT = "input"
OUTPUT = "logits"
PRECISIONS = ("fp32", "fp16", "bf16", "int8")


@dataclass(frozen=True)
class Form:
    """How a graph is written, whatever it computes."""

    batch: int | None = 1  # None: left to the caller of the model
    precision: str = "fp32"  # or one of PRECISIONS
    opset: int = OPSET
    ranges: Ranges | None = None  # int8: tensor names to (low, high); None: plausible ones, where only speed counts
    quantization: Quantization = FOR_CPUS  # int8: what differs between providers
    operators: OperatorForms = DEFAULT_FORMS
    in_float: frozenset[str] = frozenset()  # int8: parts that stay in float, by name
    float_operators: OperatorForms = DEFAULT_FORMS  # of these

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise InputError(f"batch must be at least 1, got {self.batch}")
        if self.opset < OPSET:
            raise InputError(f"opset must be at least {OPSET}, got {self.opset}")
        if self.precision not in PRECISIONS:
            raise InputError(f"no precision `{self.precision}`", hint=f"one of {', '.join(PRECISIONS)}")
        if self.precision == "int8" and not self.operators.usable_with(self.quantization):
            raise InputError(
                f"operators in the form `{self.operators}` read one tensor with two scales",
                hint="the device's `quantization: {hard_activations: operator}` rules that out: profile it again",
            )

    def writer(self, weights: WeightSource) -> GraphWriter:
        match self.precision:
            case "fp32" | "bf16":  # one graph: who runs it is told to compute in bf16
                return GraphWriter(weights, self.operators)
            case "fp16":
                return Float16Writer(weights, self.operators)
            case "int8":
                forms = self.operators, self.in_float, self.float_operators
                return QuantizedWriter(weights, self.ranges, self.quantization, *forms)
            case _:
                raise AssertionError(self.precision)


def network(
    space: Space,
    architecture: Architecture,
    weights: Mapping[str, np.ndarray] | None = None,
    batch: int | None = 1,
    *,
    precision: str = "fp32",
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A whole network; `batch=None` leaves the batch to the caller of the model.

    `weights` maps the names of `weight_shapes` to arrays with batch norm folded; without it they are random.
    """
    about = {**network_metadata(space, architecture), **(metadata or {})}
    return chain(space.parts(architecture), weights, Form(batch, precision), about)


def network_metadata(space: Space, architecture: Architecture) -> dict[str, str]:
    """What a graph says about where it came from."""
    return {"space": space.name, "space_hash": space.hash, "architecture": str(architecture)}


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
    """Block b of stage s with configuration c (all counted from 0), alone; of a cell, edge b with operation c."""
    return chain([("part", space.block(s, b, c))], weights, Form(batch, precision))


def chain(
    parts: Sequence[tuple[str, Part]],
    weights: Mapping[str, np.ndarray] | None = None,
    form: Form = Form(),
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Named parts, one after the other: what a network is, whether or not an architecture of a space chose them."""
    return onnx.ModelProto.FromString(_bytes(parts, weights, form, metadata))


def random_bytes(parts: Sequence[tuple[str, Part]], form: Form = Form()) -> bytes:
    """A chain with random weights; what a runtime loads, and faster than the message."""
    return _bytes(parts, None, form)


def nodes(parts: Sequence[tuple[str, Part]], form: Form = Form()) -> list[onnx.NodeProto]:
    """The operators of a chain; two forms with equal ones are one graph."""
    writer = form.writer(_random_weights)
    _write(writer, parts)
    return writer.nodes


def weight_shapes(space: Space, architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """The name and shape of every array that `network` asks for."""
    return chain_shapes(space.parts(architecture))


def chain_shapes(parts: Sequence[tuple[str, Part]]) -> dict[str, tuple[int, ...]]:
    """The name and shape of every array that `chain` asks for."""
    shapes: dict[str, tuple[int, ...]] = {}

    def record(name: str, shape: tuple[int, ...]) -> np.ndarray:
        shapes[name] = shape
        return np.empty(0, np.float32)

    _write(GraphWriter(record), parts)
    return shapes


def _bytes(
    parts: Sequence[tuple[str, Part]],
    weights: Mapping[str, np.ndarray] | None,
    form: Form,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    writer = form.writer(_random_weights if weights is None else _given_weights(weights))
    x, y = _write(writer, parts)
    return writer.model(x, y, form.batch, form.opset, metadata or {})


def _write(writer: GraphWriter, parts: Sequence[tuple[str, Part]]) -> tuple[Tensor, Tensor]:
    first = parts[0][1]
    x = Tensor(INPUT, first.in_channels, first.height, first.width)
    y = writer.begin(x)
    for name, geometry in parts:
        writer.enter(name)
        y = geometry.write(writer, name, y)
    return x, writer.finish(y, OUTPUT)


def _given_weights(weights: Mapping[str, np.ndarray]) -> WeightSource:
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
