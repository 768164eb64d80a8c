"""Channels between a convolution and a depthwise one, made equally large: tried for 8 bits, measured, and left out.

Where a depthwise convolution reads a channel through a ReLU, the channel may be made larger before it and its own
weights smaller by as much: they have a scale of their own, so nothing is lost, and no channel is coarse beside others.
`int8.py` measures what that brings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx

from deploynas import graph
from deploynas.export.calibration import ValueHistograms
from deploynas.export.corrections import channel_means
from deploynas.export.integer_file import IntegerSource
from deploynas.graph import INPUT
from deploynas.latency.every_value import every_value

LARGEST_FACTOR = 64.0  # a channel that hardly ever is above zero is noise


def with_equal_channels(source: IntegerSource) -> IntegerSource:
    """The same network with the same rule for ranges."""
    parts, images = source.network.parts, source.how.images
    plain = graph.chain(parts, source.float_weights, graph.Form(None))
    weights = equalised(plain, source.float_weights, _largest(plain, images))
    plain = graph.chain(parts, weights, graph.Form(None))
    means = channel_means(plain, images) if source.means is not None else None
    ranges = ValueHistograms.of(plain, images).ranges(source.how.calibration)
    return replace(source, float_weights=weights, ranges=ranges, means=means)


def _largest(fp32: onnx.ModelProto, images) -> dict[str, np.ndarray]:
    session, names = every_value(fp32)
    largest: dict[str, np.ndarray] = {}
    for batch, _ in images():
        for start in range(0, len(batch), 64):
            x = np.ascontiguousarray(batch[start : start + 64])
            for name, value in zip(names, [x, *session.run(names[1:], {INPUT: x})], strict=True):
                most = value.max(axis=(0, *range(2, value.ndim)))
                largest[name] = np.maximum(largest[name], most) if name in largest else most
    return largest


def equalised(
    fp32: onnx.ModelProto, weights: Mapping[str, np.ndarray], largest: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
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
