"""Biases that make up for rounded weights.

Rounding the weights of an operator moves the mean of what it leaves, by the rounding errors times the mean of what it
reads; the bias takes that back. Depthwise convolutions need it most: few weights, whose errors do not average out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from deploynas.export.verification import ImageStream
from deploynas.graph import INPUT
from deploynas.graph.quantized import rounded_weight
from deploynas.latency.every_value import every_value
from deploynas.quantization import Quantization


def channel_means(fp32: onnx.ModelProto, images: ImageStream) -> dict[str, np.ndarray]:
    """Of every value of a graph, over images and pixels: by name, a number for each channel."""
    session, names = every_value(fp32)
    sums: dict[str, np.ndarray] = {}
    seen = 0
    for batch, _ in images():
        for start in range(0, len(batch), 64):  # all values of a large batch at once would fill the memory
            x = np.ascontiguousarray(batch[start : start + 64])
            seen += len(x)
            for name, value in zip(names, [x, *session.run(names[1:], {INPUT: x})], strict=True):
                mean = value.mean(axis=(0, *range(2, value.ndim)), dtype=np.float64)
                sums[name] = sums.get(name, 0.0) + mean * len(x)
    return {name: total / seen for name, total in sums.items()}


def with_corrected_biases(
    fp32: onnx.ModelProto, weights: Mapping[str, np.ndarray], mean: Mapping[str, np.ndarray], quantization: Quantization
) -> dict[str, np.ndarray]:
    """Less what rounding a weight adds to the mean of what its operator leaves."""
    found = dict(weights)
    for node in fp32.graph.node:
        bias = f"{node.name}/bias"
        if node.op_type not in ("Conv", "Gemm") or bias not in found:
            continue
        weight = found[f"{node.name}/weight"]
        rounded, scale = rounded_weight(weight, quantization)
        error = (rounded * scale.reshape(-1, *[1] * (weight.ndim - 1)) - weight).reshape(*weight.shape[:2], -1).sum(2)
        read = mean[node.input[0]]
        moved = error[:, 0] * read if _groups(node) > 1 else error @ read
        found[bias] = (found[bias] - moved).astype(np.float32)
    return found


def _groups(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "group"), 1)
