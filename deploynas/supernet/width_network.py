"""One network as a supernet of its own widths: sorted by importance, a narrower block takes the first channels.

Then pruning is what extraction does already: the convolutions, the depthwise kernel, squeeze-and-excitation and batch
norm are all cut to the same first channels. `Gates` multiply the expansion channels after batch norm, where a gate of
zero takes its channel out of all that follows, and where a gate folds into scale and shift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from deploynas.space import StageSpace
from deploynas.supernet.expansion import ElasticExpansion
from deploynas.supernet.extraction import insert, timm_model
from deploynas.supernet.network import Supernet


@torch.no_grad()
def width_network(model: nn.Module, space: StageSpace) -> Supernet:
    """The supernet of a space of widths whose heaviest network is the model; in evaluation mode."""
    supernet, whole = Supernet(space), space.heaviest()
    alone = timm_model(whole)
    alone.load_state_dict(a_stage_per_block(model))
    insert(supernet, whole, alone)
    for block in gated_blocks(supernet):
        # what leaves a block has statistics of its own at every width; they begin as those of the whole network
        norm, widest = block.last_norm, block.output_row[-1]
        norm.running_mean.copy_(norm.running_mean[widest].clone().expand_as(norm.running_mean))
        norm.running_var.copy_(norm.running_var[widest].clone().expand_as(norm.running_var))
    return supernet.eval()


def a_stage_per_block(model: Any) -> dict[str, Tensor]:
    """The weights of a timm model under the names of one whose every stage has one block."""
    places = [(i, b) for i, stage in enumerate(model.blocks) for b in range(len(stage))]
    renamed = {f"blocks.{i}.{b}.": f"blocks.{number}.0." for number, (i, b) in enumerate(places)}
    state = {}
    for name, value in model.state_dict().items():
        prefix = next((old for old in renamed if name.startswith(old)), None)
        state[renamed[prefix] + name.removeprefix(prefix) if prefix else name] = value
    return state


def gated_blocks(supernet: Supernet) -> list[ElasticExpansion]:
    """The blocks that have a width to choose, in network order."""
    return [module for module in supernet.modules() if isinstance(module, ElasticExpansion)]


class Gates:
    """A factor for every expansion channel of a network of widths, 1 at first."""

    def __init__(self, supernet: Supernet) -> None:
        self.network, self.blocks = supernet, gated_blocks(supernet)
        self.values = [nn.Parameter(torch.ones(block.mid, device=block.widths.device)) for block in self.blocks]

    @contextmanager
    def applied(self, values: Sequence[Tensor] | None = None) -> Iterator[Supernet]:
        """The network with gates; with `values`, those, of which each may have a row for every image."""
        handles = [
            block.wide_norm.register_forward_hook(partial(_gated, value))
            for block, value in zip(self.blocks, values or self.values, strict=True)
        ]
        try:
            yield self.network
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def fold(self) -> None:
        """Into scale and shift of the batch norm that they follow: the same function without gates."""
        for block, value in zip(self.blocks, self.values, strict=True):
            for tensor in (block.wide_norm.weight, block.wide_norm.bias):
                tensor.mul_(value)


def _gated(gate: Tensor, module: nn.Module, arguments: tuple, output: Tensor) -> Tensor:
    return output * gate[..., : output.shape[1], None, None]


def sort_by(supernet: Supernet, importance: Sequence[Tensor]) -> None:
    """Most important channels first; the network as a whole computes what it did."""
    for block, own in zip(gated_blocks(supernet), importance, strict=True):
        block.order_channels(own.argsort(descending=True, stable=True))


def magnitudes(supernet: Supernet) -> list[Tensor]:
    """What channels weigh without any data, comparable between layers: scale times outgoing weights, in layer means."""
    found = []
    for block in gated_blocks(supernet):
        own = (block.conv_pwl.weight.abs().sum((0, 2, 3)) * block.wide_norm.weight.abs()).detach()
        found.append(own / own.mean().clamp(min=1e-12))
    return found


def lots(supernet: Supernet, seed: int) -> list[Tensor]:
    """A random number for every channel."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(block.mid, generator=generator) for block in gated_blocks(supernet)]
