"""Weights that suit 8 bits better compute the same network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploynas import graph
from deploynas.blocks.inverted_residual import InvertedResidual
from deploynas.export.calibration import activation_ranges
from deploynas.export.corrections import ChannelStatistics, equalised, with_corrected_biases
from deploynas.export.verification import ImageStream, judged
from deploynas.graph import Form
from deploynas.quantization import Quantization

RNG = np.random.default_rng(0)


def block(activation: str, se_channels: int = 0) -> list:
    part = InvertedResidual(8, 32, 8, 3, 1, se_channels, activation, 12, 12)
    return [("block", part)]


def weights_of(parts: list, spread: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    found = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in graph.chain_shapes(parts).items()}
    # channels of very different sizes, as trained networks have them
    factor = np.exp(rng.normal(0, spread, 32)).astype(np.float32)
    found["block/expand/weight"] *= factor[:, None, None, None]
    found["block/expand/bias"] *= factor
    return found


@pytest.fixture
def images() -> ImageStream:
    x = RNG.normal(size=(32, 8, 12, 12)).astype(np.float32)
    return lambda: [(x, np.zeros(len(x), int))]


def outputs(parts: list, weights: dict, images: ImageStream, form: Form | None = None) -> np.ndarray:
    content = graph.chain(parts, weights, form or Form(None)).SerializeToString()
    return judged(content, images, as_written=True).logits


@pytest.mark.parametrize("activation", ["relu", "hard_swish"])
def test_equalised_channels_are_as_large_as_the_largest(activation: str, images: ImageStream) -> None:
    parts = block(activation)
    weights = weights_of(parts)
    plain = graph.chain(parts, weights, Form(None))
    before = ChannelStatistics.of(plain, images).largest
    even = equalised(plain, weights, before)
    np.testing.assert_allclose(outputs(parts, even, images), outputs(parts, weights, images), rtol=1e-3, atol=1e-3)
    name = "block/expand/act"
    after = ChannelStatistics.of(graph.chain(parts, even, Form(None)), images).largest[name]
    if activation == "relu":
        factor = np.minimum(before[name].max() / before[name], 64)
        np.testing.assert_allclose(after, before[name] * factor, rtol=1e-3)
        assert after.min() > 2 * before[name].min()
    else:  # does not scale with what it is given, so nothing may change
        assert all(np.array_equal(even[key], weights[key]) for key in weights)


def test_equalised_channels_lose_less(images: ImageStream) -> None:
    parts = block("relu")
    weights = weights_of(parts, spread=1.5)
    exact = outputs(parts, weights, images)

    def error(chosen: dict) -> float:
        plain = graph.chain(parts, chosen, Form(None))
        ranges = activation_ranges(plain, images, "minmax")
        ranges["block/add"] = ranges["logits"]  # here the last operator is the network's output
        return float(np.abs(outputs(parts, chosen, images, Form(None, "int8", ranges=ranges)) - exact).mean())

    plain = graph.chain(parts, weights, Form(None))
    assert error(equalised(plain, weights, ChannelStatistics.of(plain, images).largest)) < error(weights)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["relu", "hard_swish", "relu6"]), st.sampled_from([0, 8]), st.sampled_from([7, 8]))
def test_corrected_biases_take_the_mean_error_back(activation: str, se_channels: int, bits: int) -> None:
    """Of one operator with exact inputs, all of it, but for what padding leaves out at the edges."""
    parts = block(activation, se_channels)
    weights, types = weights_of(parts), Quantization(weight_bits=bits)
    x = np.random.default_rng(5).normal(1.0, 1.0, size=(16, 8, 12, 12)).astype(np.float32)

    def images() -> list:
        return [(x, np.zeros(len(x), int))]

    plain = graph.chain(parts, weights, Form(None))
    mean = ChannelStatistics.of(plain, images).mean
    corrected = with_corrected_biases(plain, weights, mean, types)
    changed = {name for name in weights if not np.array_equal(corrected[name], weights[name])}
    assert changed == {name for name in weights if name.endswith("/bias")}
    weight = weights["block/expand/weight"]
    scale = np.abs(weight.reshape(32, -1)).max(axis=1) / types.largest_weight
    rounded = np.rint(weight / scale[:, None, None, None]) * scale[:, None, None, None]
    pixels = x.transpose(0, 2, 3, 1).reshape(-1, 8)
    meant = (pixels @ weight[:, :, 0, 0].T + weights["block/expand/bias"]).mean(axis=0)
    found = (pixels @ rounded[:, :, 0, 0].T + corrected["block/expand/bias"]).mean(axis=0)
    np.testing.assert_allclose(found, meant, atol=1e-4)
