"""A timm model's weights under the names that `graph/` asks for, with batch norm folded into the convolutions.

In evaluation mode a batch norm is y = (x - mean) * g + bias with g = weight / sqrt(var + eps): a factor an output
channel of the convolution before it, and a bias. Folding is done in double precision, since the factors multiply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from deploynas.errors import InputError
from deploynas.graph import weight_shapes
from deploynas.space import Architecture, part_name


@torch.no_grad()
def folded_weights(model: nn.Module, architecture: Architecture) -> dict[str, np.ndarray]:
    """What `graph.network(space, architecture, weights)` takes."""
    weights: dict[str, np.ndarray] = {}
    another = InputError("the model is not a network of this architecture", hint=f"the architecture is {architecture}")
    try:
        for name, layer, norm in _layers(model, architecture):
            weights[f"{name}/weight"], weights[f"{name}/bias"] = _fold(layer, norm)
    except (AttributeError, IndexError) as error:  # a layer or a block is not there
        raise another from error
    if architecture.space.head_hidden:  # timm's 1x1 convolution after pooling is a matrix product in the graph
        weights["head/hidden/weight"] = weights["head/hidden/weight"].reshape(architecture.space.head_hidden, -1)
    expected = weight_shapes(architecture.space, architecture)
    if {name: value.shape for name, value in weights.items()} != expected:
        raise another
    return weights


def _layers(model: Any, architecture: Architecture) -> Iterator[tuple[str, nn.Module, nn.Module | None]]:
    """(name in the graph, convolution or linear layer, the batch norm after it) in network order."""
    space = architecture.space
    yield "stem/conv", model.conv_stem, model.bn1
    if space.first:
        first = model.blocks[0][0]
        yield "first/depthwise", first.conv_dw, first.bn1
        yield "first/project", first.conv_pw, first.bn2
    offset = 1 if space.first else 0
    for s, b, c in architecture.decisions():
        block, name = model.blocks[s + offset][b], part_name(s, b)
        yield f"{name}/expand", block.conv_pw, block.bn1
        yield f"{name}/depthwise", block.conv_dw, block.bn2
        if space.block(s, b, c).se_channels:
            yield f"{name}/se/reduce", block.se.conv_reduce, None
            yield f"{name}/se/expand", block.se.conv_expand, None
        yield f"{name}/project", block.conv_pwl, block.bn3
    yield "head/features", model.blocks[-1][0].conv, model.blocks[-1][0].bn1
    if space.head_hidden:
        yield "head/hidden", model.conv_head, None
    yield "head/classifier", model.classifier, None


def _fold(layer: Any, norm: Any) -> tuple[np.ndarray, np.ndarray]:
    weight = layer.weight.detach().double().cpu()
    bias = torch.zeros(len(weight), dtype=torch.float64) if layer.bias is None else layer.bias.double().cpu()
    if norm is not None:
        mean, variance = norm.running_mean.double().cpu(), norm.running_var.double().cpu()
        factor = norm.weight.double().cpu() / torch.sqrt(variance + norm.eps)
        weight = weight * factor.view(-1, *[1] * (weight.dim() - 1))
        bias = norm.bias.double().cpu() + (bias - mean) * factor
    return weight.float().numpy(), bias.float().numpy()
