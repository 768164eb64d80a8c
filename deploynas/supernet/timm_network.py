"""A timm model made of our kinds of block, read as a network of ours: from its modules, and then checked.

The reading is believed only if the network that is rebuilt from it takes every weight and computes what the model does.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.models._efficientnet_blocks import (
    ConvBnAct,
    DepthwiseSeparableConv,
    EdgeResidual,
    InvertedResidual,
    SqueezeExcite,
)
from timm.models.mobilenetv3 import MobileNetV3
from torch import nn

from deploynas.blocks import DepthwiseSeparable
from deploynas.blocks.expansion import ExpansionConfig
from deploynas.blocks.geometry import as_written, strided
from deploynas.blocks.registry import kind_of
from deploynas.errors import InputError
from deploynas.space import Architecture, StageSpace
from deploynas.space.structure import Stage
from deploynas.supernet.extraction import timm_model
from deploynas.supernet.width_network import a_stage_per_block

ACTIVATIONS = {"relu": "relu", "relu6": "relu6", "hardswish": "hard_swish", "silu": "swish", "swish": "swish"}
KINDS = {InvertedResidual: ("ir", "conv_dw", "bn1"), EdgeResidual: ("er", "conv_exp", "bn1")}
TOLERANCE = 1e-4  # of the largest logit


def as_our_network(model: nn.Module, name: str, height: int, width: int) -> tuple[Architecture, nn.Module]:
    """The architecture, in a space of this one network, and the same weights in a network of it."""
    model = model.eval()
    if not isinstance(model, MobileNetV3):
        raise _not_ours(name, f"it is a {type(model).__name__}, expected a MobileNetV3")
    try:
        architecture = _read(model, name, height, width)
        rebuilt = timm_model(architecture)
        rebuilt.load_state_dict(a_stage_per_block(model))
    except (AttributeError, RuntimeError, StopIteration, ValueError) as error:
        raise _not_ours(name, str(error).splitlines()[0]) from error
    return architecture, _checked(rebuilt.eval(), model, name, architecture.space)


@torch.no_grad()
def _checked(rebuilt: nn.Module, model: nn.Module, name: str, space: Any) -> nn.Module:
    x = torch.randn(2, space.in_channels, space.height, space.width, generator=torch.Generator().manual_seed(0))
    expected = model(x)
    if not (rebuilt(x) - expected).abs().max() <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise _not_ours(name, "rebuilt from our blocks it computes something else")
    return rebuilt


def _read(model: Any, name: str, height: int, width: int) -> Architecture:
    blocks = [block for stage in model.blocks for block in stage]
    if not isinstance(blocks[-1], ConvBnAct):
        raise _not_ours(name, "it does not end with a convolution and batch norm")
    stem, last, hidden = model.conv_stem, blocks.pop(), model.conv_head
    first = _first(blocks[0], *(strided(size, stem.stride[0]) for size in (height, width)))
    stages = tuple(_stage(block, name) for block in blocks[1 if first else 0 :])
    space = StageSpace(
        name=name,
        in_channels=stem.in_channels,
        height=height,
        width=width,
        classes=model.classifier.out_features,
        stem_channels=stem.out_channels,
        stem_stride=stem.stride[0],
        stem_activation=_activation(model.bn1.act),
        first=first,
        stages=stages,
        head_features=last.conv.out_channels,
        head_hidden=hidden.out_channels if isinstance(hidden, nn.Conv2d) else None,
        head_activation=_activation(last.bn1.act),
        head_hidden_bias=getattr(hidden, "bias", None) is not None,
        norm_eps=model.bn1.eps,
    )
    return space.architecture([[0]] * len(stages))


def _first(block: Any, height: int, width: int) -> DepthwiseSeparable | None:
    if not isinstance(block, DepthwiseSeparableConv):
        return None
    layer = block.conv_dw
    shape = (layer.in_channels, block.conv_pw.out_channels, layer.kernel_size[0], layer.stride[0])
    return DepthwiseSeparable(*shape, _activation(block.bn1.act), height, width)


def _stage(block: Any, name: str) -> Stage:
    """A block as a stage of its own, with one configuration."""
    if type(block) not in KINDS:
        raise _not_ours(name, f"it has a {type(block).__name__}")
    code, layer, norm = KINDS[type(block)]
    kernel, out_channels = getattr(block, layer), block.conv_pwl.out_channels
    in_channels = block.conv_pw.in_channels if code == "ir" else kernel.in_channels
    mid = block.conv_pwl.in_channels
    squeezed = block.se.conv_reduce.out_channels if isinstance(block.se, SqueezeExcite) else 0
    kind: Any = kind_of(code).config
    config: ExpansionConfig = kind(as_written(mid / in_channels), kernel.kernel_size[0], as_written(squeezed / mid))
    return Stage(out_channels, kernel.stride[0], _activation(getattr(block, norm).act), (1,), (config,))


def _activation(module: nn.Module) -> str:
    found = type(module).__name__.lower().removesuffix("me")
    if found not in ACTIVATIONS:
        raise ValueError(f"it has the activation {type(module).__name__}")
    return ACTIVATIONS[found]


def _not_ours(name: str, why: str) -> InputError:
    return InputError(
        f"`{name}` is not made of blocks that deploynas has: {why}",
        hint="networks like timm's `mobilenetv3_large_100` and `hardcorenas_a` … `hardcorenas_f` are",
    )
