"""Writes the same network in float16: weights and every value between the model's input and output.

Input and output stay float32, with one `Cast` at each end, so that whoever calls the model feeds and reads what they
would of any other file. A runtime without operators in float16, as ONNX Runtime is on most CPUs, computes in float32
all the same.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from deploynas.blocks.operators import Tensor
from deploynas.errors import InputError
from deploynas.graph.operator_forms import DEFAULT_FORMS, OperatorForms
from deploynas.graph.writer import GraphWriter, WeightSource

LARGEST_FLOAT16 = float(np.finfo(np.float16).max)  # 65504


class Float16Writer(GraphWriter):
    """A `GraphWriter` in float16."""

    element = TensorProto.FLOAT16

    def __init__(self, weights: WeightSource, forms: OperatorForms = DEFAULT_FORMS) -> None:
        super().__init__(lambda name, shape: _rounded(name, weights(name, shape)), forms)

    def begin(self, x: Tensor) -> Tensor:
        name = f"{x.name}/float16"
        self._node("Cast", name, [x.name], to=self.element)
        return Tensor(name, x.channels, x.height, x.width)

    def finish(self, y: Tensor, name: str) -> Tensor:
        self._node("Cast", f"{y.name}/float", [y.name], to=TensorProto.FLOAT)
        return super().finish(y, name)

    def _scalar(self, name: str, value: float) -> str:
        return self._constant(name, np.asarray(value, np.float16))


def _rounded(name: str, value: np.ndarray) -> np.ndarray:
    """Rounded; a network that float16 cannot hold is refused, not written as another one."""
    largest = float(np.abs(value).max(initial=0.0))
    with np.errstate(over="ignore"):
        rounded = value.astype(np.float16)
    if not np.isfinite(rounded).all():  # 65519 is still rounded to the largest
        raise InputError(
            f"weight `{name}` reaches {largest:.4g}, more than float16 can hold ({LARGEST_FLOAT16:g})",
            hint="`precision: fp32`",
        )
    if largest > 0 and not rounded.any() and name.endswith("/weight"):  # a bias that small adds nothing in fp32 either
        raise InputError(
            f"weight `{name}` is nothing but zeros in float16: it reaches {largest:.2g}",
            hint="`precision: fp32`",
        )
    return rounded
