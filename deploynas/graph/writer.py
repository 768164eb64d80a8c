"""Writes an ONNX graph operator by operator. Tensors are named after the node that makes them.

A convolution asks for `<name>/weight` and `<name>/bias`; where they come from (a trained network or a random
buffer) is the `WeightSource`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from deploynas.blocks.geometry import strided
from deploynas.blocks.operators import Tensor
from deploynas.errors import InputError
from deploynas.graph.operator_forms import DEFAULT_FORMS, OperatorForms
from deploynas.graph.wire import with_weights

OPSET = 17  # HardSwish (14) as one operator, which the runtime fuses into convolutions
IR_VERSIONS = ((19, 9), (21, 10), (22, 10), (23, 11))  # first IR version that carries an opset
DYNAMIC = "batch"

WeightSource = Callable[[str, tuple[int, ...]], np.ndarray]


class GraphWriter:
    """Collects nodes and initialisers, then makes a model of them. Its input and output are float32."""

    element = TensorProto.FLOAT  # of the values between them

    def __init__(self, weights: WeightSource, forms: OperatorForms = DEFAULT_FORMS) -> None:
        self.weights = weights
        self.forms = forms
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, np.ndarray] = {}
        self._declared: list[Tensor] = []  # values whose shape the model states
        self._flattened_later: dict[str, str] = {}  # by the value's name: the name of the `Flatten` to come

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
        norm: bool = True,  # folded into weight and bias, which a convolution without it has too
        bias: bool = True,
    ) -> Tensor:
        shape = (out_channels, 1 if depthwise else x.channels, kernel, kernel)
        inputs = [x.name, *self._parameters(name, shape, x.name, bias)]
        self._node(
            "Conv",
            name,
            inputs,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=out_channels if depthwise else 1,
        )
        out = Tensor(name, out_channels, strided(x.height, stride), strided(x.width, stride))
        return self.activate(out, activation)

    def linear(self, name: str, x: Tensor, outputs: int, *, activation: str | None = None, bias: bool = True) -> Tensor:
        later = self._flattened_later.pop(x.name, None)
        if later is not None and activation:
            y = self.activate(self._pixel_linear(name, x, outputs, bias), activation)
            self._flattened_later[y.name] = later
            return y
        if later is not None and self._last_is_conv():
            return self._flatten_now(later, self._pixel_linear(name, x, outputs, bias))
        if later is not None:
            x = self._flatten_now(later, x)
        inputs = [x.name, *self._parameters(name, (outputs, x.channels), x.name, bias)]
        self._node("Gemm", name, inputs, transB=1)
        y = Tensor(name, outputs)
        return self.activate(y, activation) if activation else y

    def _last_is_conv(self) -> bool:
        """Whether a dense layer without activation, which is the classifier, is written as a convolution."""
        return self.forms.dense == "conv"

    def _pixel_linear(self, name: str, x: Tensor, outputs: int, bias: bool) -> Tensor:
        """A matrix product as a convolution of one pixel; its weight is still asked for as the matrix it is."""
        shape = (outputs, x.channels)
        inputs = [x.name, *self._parameters(name, shape, x.name, bias, stored=(*shape, 1, 1))]
        self._node("Conv", name, inputs, kernel_shape=[1, 1])
        return Tensor(name, outputs)

    def activate(self, x: Tensor, activation: str | None) -> Tensor:
        if activation is None:
            return x
        name = f"{x.name}/act"
        self._activation(name, x.name, activation)
        return Tensor(name, x.channels, x.height, x.width)

    def _activation(self, name: str, x: str, activation: str) -> None:
        if activation == "relu":
            self._node("Relu", name, [x])
        elif activation == "hard_swish":
            self._node("HardSwish", name, [x])
        elif activation == "hard_sigmoid":
            self._node("HardSigmoid", name, [x], alpha=1 / 6, beta=0.5)
        elif activation == "relu6":
            self._node("Clip", name, [x, self._scalar("zero", 0.0), self._scalar("six", 6.0)])
        elif activation == "swish":
            self._node("Sigmoid", f"{name}/sigmoid", [x])
            self._node("Mul", name, [x, f"{name}/sigmoid"])
        else:
            raise InputError(f"no activation `{activation}`")

    def relu(self, name: str, x: Tensor) -> Tensor:
        self._node("Relu", name, [x.name])
        return Tensor(name, x.channels, x.height, x.width)

    def norm(self, name: str, x: Tensor, *, activation: str | None = None) -> Tensor:
        # as a convolution that sees one pixel of one channel: it stays in the runtime's blocked layout, and takes the
        # activation in
        return self.conv(name, x, x.channels, depthwise=True, activation=activation)

    def average_pool(self, name: str, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        window = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "pads": [(kernel - 1) // 2] * 4}
        self._node("AveragePool", name, [x.name], **window)
        return Tensor(name, x.channels, strided(x.height, stride), strided(x.width, stride))

    def global_pool(self, name: str, x: Tensor) -> Tensor:
        # not ReduceMean: only GlobalAveragePool stays in the runtime's blocked layout
        self._node("GlobalAveragePool", name, [x.name])
        return Tensor(name, x.channels)

    def flatten(self, name: str, x: Tensor) -> Tensor:
        if self.forms.dense != "gemm" and x.height * x.width == 1:
            # one pixel is a vector already: dense layers that are convolutions come first
            self._flattened_later[x.name] = name
            return x
        return self._flatten_now(name, x)

    def _flatten_now(self, name: str, x: Tensor) -> Tensor:
        self._node("Flatten", name, [x.name])
        return Tensor(name, x.channels * x.height * x.width)

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        self._node("Add", name, [x.name, y.name])
        return Tensor(name, x.channels, x.height, x.width)

    def zeros(self, name: str, x: Tensor) -> Tensor:
        # a product, since a constant would not know the batch
        self._node("Mul", name, [x.name, self._scalar("zero", 0.0)])
        return Tensor(name, x.channels, x.height, x.width)

    def scale(self, name: str, x: Tensor, gate: Tensor) -> Tensor:
        """x times a gate per channel."""
        if self.forms.gate == "resize" and x.height * x.width > 1:
            gate = self._every_pixel(f"{name}/gate", gate, x)
        self._node("Mul", name, [x.name, gate.name])
        return Tensor(name, x.channels, x.height, x.width)

    def _every_pixel(self, name: str, gate: Tensor, x: Tensor) -> Tensor:
        """The gate once for each pixel of x."""
        scales = self._constant(f"{name}/scales", np.asarray([1, 1, x.height, x.width], np.float32))
        # the one kind of resize that the runtime has in its blocked layout
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        self._node("Resize", name, [gate.name, "", scales], **how)
        wide = Tensor(name, gate.channels, x.height, x.width)
        # inference loses a free batch in `Resize`, and then the runtime cannot tell that both factors have one shape
        self._declared.append(wide)
        return wide

    def enter(self, part: str) -> None:
        """What comes next belongs to the part of this name."""

    def begin(self, x: Tensor) -> Tensor:
        """The model's input, as the first operator reads it."""
        return x

    def finish(self, y: Tensor, name: str) -> Tensor:
        """Give the last value the name that callers of the model will use."""
        self.nodes[-1].output[0] = name
        return Tensor(name, y.channels, y.height, y.width)

    def model(self, x: Tensor, y: Tensor, batch: int | None, opset: int, metadata: Mapping[str, str]) -> bytes:
        first = batch if batch is not None else DYNAMIC
        output_shape = [first, y.channels] + ([y.height, y.width] if y.height * y.width > 1 else [])
        graph = helper.make_graph(
            self.nodes,
            "deploynas",
            [helper.make_tensor_value_info(x.name, TensorProto.FLOAT, [first, x.channels, x.height, x.width])],
            [helper.make_tensor_value_info(y.name, TensorProto.FLOAT, output_shape)],
            value_info=[
                helper.make_tensor_value_info(v.name, self.element, [first, v.channels, v.height, v.width])
                for v in self._declared
            ],
        )
        ir_version = max([8] + [ir for first_opset, ir in IR_VERSIONS if opset >= first_opset])
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", opset)],
            ir_version=ir_version,  # the oldest that will do: older runtimes read the file too
            producer_name="deploynas",
        )
        helper.set_model_props(model, dict(metadata))
        return with_weights(model, self.initializers)

    def _node(self, kind: str, name: str, inputs: list[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))

    def _parameters(
        self,
        name: str,
        shape: tuple[int, ...],
        x: str,
        bias: bool = True,
        stored: tuple[int, ...] | None = None,  # the weight's shape in the graph, where it is another
    ) -> list[str]:
        """The weight, and the bias if it has one, of the operator that reads value `x`."""
        weight = self.weights(f"{name}/weight", shape)
        read = [self._constant(f"{name}/weight", weight.reshape(stored) if stored else weight)]
        if bias:
            read.append(self._constant(f"{name}/bias", self.weights(f"{name}/bias", shape[:1])))
        return read

    def _scalar(self, name: str, value: float) -> str:
        return self._constant(name, np.asarray(value, np.float32))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.setdefault(name, value)
        return name
