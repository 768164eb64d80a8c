"""Dimensions of transformers: what is pruned computes what is masked, gates fold, MACs are what is counted."""

from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from deploynas.errors import InputError
from deploynas.supernet.transformer_widths import (
    TransformerGates,
    macs_of,
    macs_per_dimension,
    narrowed,
    require_transformer,
)

OPTIONS = {"img_size": 16, "patch_size": 4, "in_chans": 2, "num_classes": 5, "embed_dim": 32, "depth": 3}
SHAPE = (2, 16, 16)


@pytest.fixture(params=[2, 4], ids=["2 heads", "4 heads"])
def model(request) -> nn.Module:
    torch.manual_seed(0)
    made = timm.create_model("vit_tiny_patch16_224", num_heads=request.param, **OPTIONS).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    return require_transformer(made, "tiny")


def images(count: int = 3) -> torch.Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def drawn(gates: TransformerGates, seed: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [2 * torch.rand(len(value), generator=generator) - 0.5 for value in gates.values]


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def kept_of(gates: TransformerGates, share: float) -> list[torch.Tensor]:
    return [
        own.argsort(descending=True)[: max(1, round(share * len(own)))].sort().values for own in drawn(gates, seed=7)
    ]


@pytest.mark.parametrize("share", [0.25, 0.6, 1.0])
@torch.no_grad()
def test_what_is_pruned_computes_what_is_masked(model: nn.Module, share: float) -> None:
    gates = TransformerGates(model)
    kept = kept_of(gates, share)
    for value, own in zip(gates.values, kept, strict=True):
        value.copy_(torch.zeros(len(value)).index_fill(0, own, 1.0))
    with gates.applied():
        masked = model(images())
    pruned = narrowed(model.requires_grad_(False), kept).eval()
    close(pruned(images()), masked)
    assert all(parameter.requires_grad for parameter in pruned.parameters())
    assert {block.attn.scale for block in pruned.blocks} == {block.attn.scale for block in model.blocks}


@torch.no_grad()
def test_with_the_scale_of_the_smaller_heads_it_would_be_another_function(model: nn.Module) -> None:
    gates = TransformerGates(model)
    pruned = narrowed(model, kept_of(gates, 0.25)).eval()
    right = pruned(images())
    for block in pruned.blocks:
        block.attn.fused_attn = True  # takes its scale from the dimension
    assert (pruned(images()) - right).abs().max() > 1e-3 * right.abs().max()  # rounding is a thousandth of that


@torch.no_grad()
def test_folded_gates_compute_what_gates_do(model: nn.Module) -> None:
    gates = TransformerGates(model)
    for value, own in zip(gates.values, drawn(gates), strict=True):
        value.copy_(own)
    with gates.applied():
        gated = model(images())
    gates.fold()
    close(model(images()), gated)


@torch.no_grad()
def test_one_diagonal_scales_queries_keys_and_values_of_all_heads(model: nn.Module) -> None:
    """By the formula: SA(QA, KA, VA) in every head, with the scale of the unpruned head."""
    gates, attention = TransformerGates(model), model.blocks[0].attn
    diagonal = drawn(gates)[0]
    gates.values[0].copy_(diagonal)
    x = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(3))
    with gates.applied():
        found = attention(x)
    q, k, v = attention.qkv(x).view(2, 7, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4) * diagonal
    heads = F.softmax(q @ k.transpose(-2, -1) / len(diagonal) ** 0.5, -1) @ v
    close(found, attention.proj(heads.transpose(1, 2).reshape(2, 7, -1)))


@torch.no_grad()
def test_a_gate_for_every_image(model: nn.Module) -> None:
    gates = TransformerGates(model)
    own = [torch.stack([value, 1 - value, value / 2]) for value in drawn(gates)]
    with gates.applied(own):
        together = model(images())
    for i in range(3):
        with gates.applied([value[i] for value in own]):
            close(model(images()[i : i + 1])[0], together[i])


@pytest.mark.parametrize("share", [0.25, 0.6])
def test_macs_of_a_pruned_network_are_those_that_dimensions_cost(model: nn.Module, share: float) -> None:
    gates = TransformerGates(model)
    kept = kept_of(gates, share)
    gone = sum(
        each * (len(value) - len(own))
        for each, value, own in zip(macs_per_dimension(model), gates.values, kept, strict=True)
    )
    assert macs_of(model, SHAPE) - macs_of(narrowed(model, kept), SHAPE) == gone


def test_what_has_more_to_its_attention_is_refused() -> None:
    with pytest.raises(InputError, match="expected a VisionTransformer"):
        require_transformer(nn.Identity(), "identity")
    normed = timm.create_model("vit_tiny_patch16_224", num_heads=2, qk_norm=True, **OPTIONS)
    with pytest.raises(InputError, match="norms or gates"):
        require_transformer(normed, "normed")
