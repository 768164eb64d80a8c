"""Operations that a graph can write in several ways with equal results, and the way each of them is written.

Equal up to rounding: of floats, or to 8 bits.

Which way is fastest depends on the runtime and on the machine, so a profile measures it (`latency/form_trials.py`). The
default is what a graph has when nothing was measured. docs/latency-model.md has what was tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from deploynas.quantization import Quantization


class OperatorForms(BaseModel):
    """One field for each operation."""

    model_config = ConfigDict(frozen=True)

    # squeeze-and-excitation: x times a gate of one pixel, or times the gate repeated for every pixel. A product of
    # equal shapes stays in the runtime's blocked layout; one that broadcasts converts the widest tensor twice
    gate: Literal["product", "resize"] = "product"
    # dense layers of the head: matrix products, or 1x1 convolutions of what the pool leaves: the hidden layer, or both
    dense: Literal["gemm", "hidden-conv", "conv"] = "gemm"
    # in 8 bits, the hard sigmoid of that gate: an addition of 1/2 whose quantisation saturates, or no operator at all:
    # a bias of the convolution before it
    hard_sigmoid: Literal["add", "bias"] = "add"

    def alternatives(self) -> Iterator[tuple[str, OperatorForms]]:
        """Every other way of writing one operation: the name of the operation, and the forms with it."""
        for name, field in type(self).model_fields.items():
            for value in get_args(field.annotation):
                if value != getattr(self, name):
                    yield name, self.model_copy(update={name: value})

    def usable_with(self, quantization: Quantization) -> bool:
        """Whether an 8-bit graph can be written so: as a bias, the hard sigmoid reads bytes with another scale than
        that which they were made with.
        """
        return self.hard_sigmoid != "bias" or quantization.hard_activations == "add"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self)


DEFAULT_FORMS = OperatorForms()
