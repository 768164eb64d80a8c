"""What 8-bit graphs are made of: which integers, with which scales, and what stays in float.

The defaults are what is fast with ONNX Runtime's CPU provider. Other providers want other graphs of the same network:
TensorRT symmetric signed activations and biases in float, Qualcomm's NPUs one scale for each tensor and nothing in
float. Where ranges come from is calibration's business (`export/calibration.py`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator


class Quantization(BaseModel):
    """What differs between providers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    activations: Literal["uint8", "int8"] = "uint8"
    # true: as far below zero as above it, so that the zero point is the middle: 0 of int8, 128 of uint8
    symmetric: bool = False
    per_channel: bool = True  # weights: a scale for each output channel, or one for all
    # 7 on x86 processors without VNNI, where a sum of two products of 8 bits saturates at 16
    weight_bits: Literal[7, 8] = 8
    # `uint8`: the same integers, 128 higher; their kernels on such processors sum in 32 bits, and take longer
    weights: Literal["int8", "uint8"] = "int8"
    # `float`: as it is, for providers that know no bias in 32-bit integers
    bias: Literal["int32", "float"] = "int32"
    # hard swish and hard sigmoid. `add`: an addition whose quantisation saturates, and which reads one tensor with two
    # scales. `operator`: ONNX's own, in float between two conversions; every tensor has one scale
    hard_activations: Literal["add", "operator"] = "add"
    # what the classifier leaves. `8-bit` where nothing may compute in float, at the price of coarser logits
    logits: Literal["float", "8-bit"] = "float"

    @model_validator(mode="after")
    def _saturates_at_zero(self) -> Quantization:
        if self.symmetric and self.hard_activations == "add":
            raise ValueError(
                "`symmetric: true` needs `hard_activations: operator`: as an addition, a hard activation ends at 0 "
                "because its range does, and a symmetric range goes on below"
            )
        return self

    @property
    def largest_weight(self) -> int:
        return 127 if self.weight_bits == 8 else 63  # 2 * 255 * 63 < 2^15

    @property
    def weight_zero(self) -> int:
        """The number that stands for a weight of 0."""
        return 0 if self.weights == "int8" else 128

    @property
    def sums_exactly(self) -> bool:
        """Whether no sum of two products leaves 16 bits, or kernels sum in 32, on any processor."""
        return self.weight_bits == 7 or self.weights == "uint8"

    @property
    def lowest(self) -> int:
        """The smallest number that an activation can be."""
        return 0 if self.activations == "uint8" else -128

    def step(self, low: float, high: float) -> tuple[float, int]:
        """Scale and zero point of a range; zero has to lie in it."""
        if self.symmetric:
            return max(-low, high) / 127, self.lowest + 128
        scale = (high - low) / 255
        return scale, self.lowest + round(-low / scale)


FOR_CPUS = Quantization()
