"""The dimensions of timm's vision transformers: gates on them, and the network without those that are pruned (SiDT).

A layer has two kinds. A dimension of its heads has one gate, shared by Q, K and V and by all heads (METHODS: SiDT), so
that pruning it leaves heads of one size. A hidden unit of its MLP has one before the activation, which is 0 at 0. The
softmax keeps the scale of the unpruned heads: with that of the smaller ones it would be another function.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from timm.layers import Attention, Mlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from deploynas.errors import InputError


def is_transformer(model: nn.Module) -> bool:
    return isinstance(model, VisionTransformer)


def require_transformer(model: Any, name: str) -> Any:
    """Refuse what has more to it than the attention and the MLP that are pruned here."""
    if not isinstance(model, VisionTransformer):
        raise InputError(f"`{name}` is a {type(model).__name__}, expected a VisionTransformer of timm's")
    for block in model.blocks:
        attention, mlp = block.attn, block.mlp
        plain = type(attention) is Attention and type(mlp) is Mlp and hasattr(attention, "attn_dim")
        between = [getattr(attention, part, None) for part in ("q_norm", "k_norm", "norm", "gate")]
        if not plain or any(not isinstance(own, nn.Identity) for own in (*filter(None, between), mlp.norm)):
            raise InputError(
                f"`{name}` has norms or gates inside its attention or its MLP, which cannot be pruned with them",
                hint="plain ones are timm's `vit_*_patch16_224` and `deit_*`, in a recent timm",
            )
    return model


class TransformerGates:
    """A factor for each dimension of the heads and each hidden unit, layer by layer: heads, MLP, heads, MLP, …"""

    def __init__(self, model: Any) -> None:
        self.network = model
        self.layers: list[tuple[nn.Linear, int]] = []  # what a gate multiplies, and how often it repeats there
        for block in model.blocks:
            self.layers += [(block.attn.qkv, 3 * block.attn.num_heads), (block.mlp.fc1, 1)]
        self.values = [
            nn.Parameter(torch.ones(layer.out_features // times, device=layer.weight.device))
            for layer, times in self.layers
        ]

    @contextmanager
    def applied(self, values: Sequence[Tensor] | None = None) -> Iterator[nn.Module]:
        """The network with gates; with `values`, those, of which each may have a row for every image."""
        handles = [
            layer.register_forward_hook(partial(_gated, value, times))
            for (layer, times), value in zip(self.layers, values or self.values, strict=True)
        ]
        try:
            yield self.network
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def fold(self) -> None:
        """Into the weights and biases that they multiply: the same function without gates."""
        for (layer, times), value in zip(self.layers, self.values, strict=True):
            layer.weight.mul_(value.repeat(times)[:, None])
            if layer.bias is not None:
                layer.bias.mul_(value.repeat(times))

    def lots(self, seed: int) -> list[Tensor]:
        """A random number for each."""
        generator = torch.Generator().manual_seed(seed)
        return [torch.rand(len(value), generator=generator) for value in self.values]

    def magnitudes(self) -> list[Tensor]:
        """What dimensions weigh without any data, in means of their layer: rows of the weights that make them."""
        found = []
        for layer, times in self.layers:
            own = layer.weight.detach().abs().sum(1).view(times, -1).sum(0)
            found.append(own / own.mean().clamp(min=1e-12))
        return found


def _gated(gate: Tensor, times: int, module: nn.Module, arguments: tuple, output: Tensor) -> Tensor:
    repeated = torch.cat([gate] * times, dim=-1)
    return output * (repeated[:, None] if gate.dim() == 2 else repeated)  # a row for each image, or one for all


def most_important(importance: Sequence[Tensor], widths: Sequence[int]) -> list[Tensor]:
    """So many of each layer, in the order in which they stand."""
    return [
        own.argsort(descending=True, stable=True)[:width].sort().values
        for own, width in zip(importance, widths, strict=True)
    ]


@torch.no_grad()
def narrowed(model: Any, kept: Sequence[Tensor]) -> nn.Module:
    """A copy with these dimensions alone, in the order of the gates: what it computes with zero gates elsewhere."""
    model = copy.deepcopy(model)
    for block, dimensions, units in zip(model.blocks, kept[::2], kept[1::2], strict=True):
        attention, mlp = block.attn, block.mlp
        heads, size = attention.num_heads, attention.head_dim
        attention.qkv = _rows(attention.qkv, _in_every_head(dimensions, 3 * heads, size))
        attention.proj = _columns(attention.proj, _in_every_head(dimensions, heads, size))
        attention.head_dim, attention.attn_dim = len(dimensions), heads * len(dimensions)
        attention.fused_attn = False  # which would take its scale from the smaller heads, not from `attention.scale`
        mlp.fc1, mlp.fc2 = _rows(mlp.fc1, units), _columns(mlp.fc2, units)
    return model.requires_grad_(True)  # weights stand still while gates are learned, not after


def _in_every_head(dimensions: Tensor, heads: int, size: int) -> Tensor:
    return (size * torch.arange(heads)[:, None] + dimensions).flatten()


def _rows(layer: nn.Linear, kept: Tensor) -> nn.Linear:
    made = nn.Linear(layer.in_features, len(kept), bias=layer.bias is not None)
    made.weight.copy_(layer.weight[kept])
    if layer.bias is not None:
        made.bias.copy_(layer.bias[kept])
    return made


def _columns(layer: nn.Linear, kept: Tensor) -> nn.Linear:
    made = nn.Linear(len(kept), layer.out_features, bias=layer.bias is not None)
    made.weight.copy_(layer.weight[:, kept])
    if layer.bias is not None:
        made.bias.copy_(layer.bias)
    return made


def macs_of(model: Any, shape: tuple[int, int, int]) -> int:
    """Multiply-accumulates of one image, counted while it runs."""
    unfused = [module for module in model.modules() if getattr(module, "fused_attn", False)]
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        for module in unfused:
            module.fused_attn = False
        model.eval()(torch.zeros(1, *shape))
    for module in unfused:
        module.fused_attn = True
    return counted.get_total_flops() // 2


def macs_per_dimension(model: Any) -> list[int]:
    """What a dimension of each layer's heads and a hidden unit cost; exact, since all of it is linear in them."""
    tokens = model.patch_embed.num_patches + model.num_prefix_tokens
    found = []
    for block in model.blocks:
        heads, width = block.attn.num_heads, block.attn.qkv.in_features
        found += [heads * (4 * tokens * width + 2 * tokens**2), 2 * tokens * width]
    return found
