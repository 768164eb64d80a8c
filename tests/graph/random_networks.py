"""Networks with independent random weights, images for them, and what a runtime makes of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime

from deploynas import graph
from deploynas.blocks import Part

Parts = Sequence[tuple[str, Part]]
Weights = dict[str, np.ndarray]


def random_weights(parts: Parts) -> Weights:
    """Independent, and such that values keep their size and gates are open by half, as in a trained network. With wide
    open and closed gates a change of a weight's last bit changes a network by per cents.
    """
    rng = np.random.default_rng(0)

    def spread(name: str, shape: tuple[int, ...]) -> float:
        if len(shape) == 1:
            return 0.1
        gain = 0.3 if "/se/" in name else 1.0 if "/project/" in name else np.sqrt(2)
        return float(gain / np.sqrt(np.prod(shape[1:])))

    return {
        name: (spread(name, shape) * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in graph.chain_shapes(parts).items()
    }


def random_images(parts: Parts, count: int) -> np.ndarray:
    first = parts[0][1]
    shape = (count, first.in_channels, first.height, first.width)
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def run(content: bytes, x: np.ndarray, *, fused: bool = True) -> np.ndarray:
    """`fused=False`: 8 bits in float between conversions, which is what the graph says. Integer operators of x86
    processors without VNNI saturate.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, {graph.INPUT: x})[0]


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
