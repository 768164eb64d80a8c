"""A network's weights under the names that `graph/` asks for, with batch norm folded into the convolutions.

In evaluation mode a batch norm is y = (x - mean) * g + bias with g = weight / sqrt(var + eps): a factor an output
channel of the convolution before it, and a bias. One that has no convolution before it becomes one of a pixel and a
channel. Folding is done in double precision, since the factors multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from deploynas.blocks import DepthwiseSeparable, Head, Part, Stem
from deploynas.errors import InputError
from deploynas.graph import chain_shapes
from deploynas.supernet.cell_alone import CellNetwork
from deploynas.supernet.folding import Layer
from deploynas.supernet.searched_block import elastic_kind

_OTHER_PARTS = InputError("the model is not a network of these parts", hint="was it made for another architecture?")


@torch.no_grad()
def folded_weights(model: nn.Module, parts: Sequence[tuple[str, Part]]) -> dict[str, np.ndarray]:
    """What `graph.chain(parts, weights)` takes, from a network of these parts."""
    weights: dict[str, np.ndarray] = {}
    for name, layer, norm in model.layers(parts) if isinstance(model, CellNetwork) else _timm_layers(model, parts):
        weights[f"{name}/weight"], bias = _fold(layer, norm)
        if bias is not None:
            weights[f"{name}/bias"] = bias
    expected = chain_shapes(parts)
    # timm's 1x1 convolution after pooling is a matrix product in the graph
    shaped = {
        name: value.reshape(expected[name]) if value.ndim == 4 and len(expected.get(name, ())) == 2 else value
        for name, value in weights.items()
    }
    if {name: value.shape for name, value in shaped.items()} != expected:
        raise _OTHER_PARTS
    return shaped


def _timm_layers(model: Any, parts: Sequence[tuple[str, Part]]) -> Iterator[Layer]:
    """In network order; timm's stages are groups of blocks, ours are in the names."""
    there = [block for stage in model.blocks for block in stage]
    if len(there) != sum(not isinstance(part, Stem) for _, part in parts):
        raise _OTHER_PARTS
    blocks = iter(there)
    for name, part in parts:
        match part:
            case Stem():
                found = iter([("conv", model.conv_stem, model.bn1)])
            case DepthwiseSeparable():
                first = next(blocks)
                found = iter([("depthwise", first.conv_dw, first.bn1), ("project", first.conv_pw, first.bn2)])
            case Head():
                found = _head(model, next(blocks), part)
            case _:
                found = elastic_kind(part.code).layers(next(blocks))
        for layer, module, norm in found:
            yield f"{name}/{layer}", module, norm


def _head(model: Any, last: Any, part: Head) -> Iterator[Layer]:
    yield "features", last.conv, last.bn1
    if part.hidden:
        yield "hidden", model.conv_head, None
    yield "classifier", model.classifier, None


def _fold(layer: Any, norm: Any) -> tuple[np.ndarray, np.ndarray | None]:
    if layer is None:  # a batch norm alone: a convolution that sees one pixel of one channel, and changes nothing
        layer = nn.Conv2d(norm.num_features, norm.num_features, 1, groups=norm.num_features, bias=False)
        nn.init.ones_(layer.weight)
    weight = layer.weight.detach().double().cpu()
    bias = None if layer.bias is None else layer.bias.double().cpu()
    if norm is not None:
        mean, variance = norm.running_mean.double().cpu(), norm.running_var.double().cpu()
        factor = norm.weight.double().cpu() / torch.sqrt(variance + norm.eps)
        weight = weight * factor.view(-1, *[1] * (weight.dim() - 1))
        bias = norm.bias.double().cpu() + ((0 if bias is None else bias) - mean) * factor
    return weight.float().numpy(), None if bias is None else bias.float().numpy()
