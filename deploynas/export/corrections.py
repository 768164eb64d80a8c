"""Weights that suit 8 bits better, of the same network: equalised channels, and biases that make up for rounding.

An activation has one scale for all its channels, so a channel that is small beside the others is coarse. Where a
depthwise convolution reads a channel through a ReLU, the channel may be made larger before it and its own weights
smaller by as much: they have a scale of their own, so nothing is lost. Rounding weights also moves the mean of what a
convolution leaves, by the rounding errors times the mean of what it reads; the bias takes that back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from deploynas.export.verification import ImageStream
from deploynas.graph import INPUT
from deploynas.graph.quantized import rounded_weight
from deploynas.latency.every_value import every_value
from deploynas.quantization import Quantization

Weights = Mapping[str, np.ndarray]
LARGEST_FACTOR = 64.0  # a channel that hardly ever is above zero is noise


@dataclass(frozen=True)
class ChannelStatistics:
    """Of every value of a graph, over images and pixels: by name, a number for each channel."""

    mean: dict[str, np.ndarray]
    largest: dict[str, np.ndarray]

    @classmethod
    def of(cls, fp32: onnx.ModelProto, images: ImageStream) -> ChannelStatistics:
        session, names = every_value(fp32)
        sums: dict[str, np.ndarray] = {}
        largest: dict[str, np.ndarray] = {}
        seen = 0
        for batch, _ in images():
            for start in range(0, len(batch), 64):  # all values of a large batch at once would fill the memory
                x = np.ascontiguousarray(batch[start : start + 64])
                seen += len(x)
                for name, value in zip(names, [x, *session.run(names[1:], {INPUT: x})], strict=True):
                    around = (0, *range(2, value.ndim))
                    mean = value.mean(axis=around, dtype=np.float64) * len(x)
                    sums[name] = sums.get(name, 0.0) + mean
                    most = value.max(axis=around)
                    largest[name] = np.maximum(largest[name], most) if name in largest else most
        return cls({name: total / seen for name, total in sums.items()}, largest)


def equalised(fp32: onnx.ModelProto, weights: Weights, largest: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Channels between a convolution and a depthwise one, as large as the largest of them."""
    found = dict(weights)
    for first, between, depthwise in _pairs(fp32):
        channel = np.maximum(largest[between].astype(np.float64), 0.0)
        most = channel.max(initial=0.0)
        if most <= 0:
            continue
        factor = np.clip(most / np.maximum(channel, 1e-12), 1.0, LARGEST_FACTOR).astype(np.float32)
        found[f"{first}/weight"] = found[f"{first}/weight"] * factor[:, None, None, None]
        found[f"{first}/bias"] = found[f"{first}/bias"] * factor
        found[f"{depthwise}/weight"] = found[f"{depthwise}/weight"] / factor[:, None, None, None]
    return found


def _pairs(fp32: onnx.ModelProto) -> Iterator[tuple[str, str, str]]:
    """A convolution, the value that its ReLU leaves, and the depthwise convolution that alone reads it, of one part."""
    made_by = {node.output[0]: node for node in fp32.graph.node}
    readers: dict[str, int] = {}
    for node in fp32.graph.node:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    for node in fp32.graph.node:
        if node.op_type != "Conv" or _groups(node) == 1:
            continue
        between = made_by.get(node.input[0])
        if between is None or between.op_type not in ("Relu", "Clip") or readers[between.output[0]] > 1:
            continue
        first = made_by.get(between.input[0])
        if first is not None and first.op_type == "Conv" and _part(first.name) == _part(node.name):
            yield first.name, between.output[0], node.name


def _groups(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "group"), 1)


def _part(name: str) -> str:
    return name.rpartition("/")[0]


def with_corrected_biases(
    fp32: onnx.ModelProto, weights: Weights, mean: Mapping[str, np.ndarray], quantization: Quantization
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
