"""One searched block of a supernet: elastic weights of one kind, or of several kinds side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from deploynas.blocks import BlockConfig, Part, kind_of
from deploynas.supernet.elastic import INACTIVE, cat, take
from deploynas.supernet.folding import Layer


class ElasticBlock(Protocol):
    """What the supernet asks of a block, whatever its kind."""

    def __call__(self, x: Tensor, choice: int | Tensor) -> Tensor:
        """`choice` is one configuration for all images, or one per image, where INACTIVE passes it through."""
        ...

    def mixed(self, x: Tensor, weights: Tensor) -> Tensor:
        """The sum of what all configurations make of x, each times its weight."""
        ...

    def views(self, config: int) -> Iterator[tuple[str, Tensor]]:
        """timm's names of the tensors that a configuration uses, and where they are."""
        ...

    def sort_channels(self) -> None:
        """Put what matters most first, where smaller configurations take the first part; no output may change."""
        ...


class ElasticKind(Protocol):
    """The class of such blocks, one per kind."""

    def __call__(self, parts: Sequence[Part]) -> nn.Module: ...

    def layers(self, block: nn.Module) -> Iterator[Layer]:
        """The layers of timm's block of this kind, by the names that the graph gives them."""
        ...


def elastic_kind(code: str) -> ElasticKind:
    """The torch side of a kind of block."""
    return cast(ElasticKind, kind_of(code).elastic)


def elastic_block(configs: Sequence[BlockConfig], parts: Sequence[Part]) -> nn.Module:
    """A block that can be any of the configurations, whose geometries are `parts`."""
    codes = list(dict.fromkeys(config.code for config in configs))
    if len(codes) == 1:
        return elastic_kind(codes[0])(parts)
    return Mixture([config.code for config in configs], parts)


class Mixture(nn.Module):
    """Blocks of several kinds in one place: each image goes through the one that its configuration is of."""

    def __init__(self, codes: Sequence[str], parts: Sequence[Part]) -> None:
        super().__init__()
        members = {code: [c for c, own in enumerate(codes) if own == code] for code in dict.fromkeys(codes)}
        self.kinds = nn.ModuleDict(
            {code: elastic_kind(code)([parts[c] for c in configs]) for code, configs in members.items()}
        )
        # of each configuration: its kind, and its number there; images without the block may go anywhere
        self._home = [(code, members[code].index(c)) for c, code in enumerate(codes)]
        self._members = members
        self._kind = torch.tensor([*(list(members).index(code) for code in codes), 0])
        self._number = torch.tensor([*(number for _, number in self._home), INACTIVE])

    def forward(self, x: Tensor, choice: int | Tensor) -> Tensor:
        if isinstance(choice, int):
            code, own = self._home[choice]
            return self.kinds[code](x, own)
        kind, number = self._kind[choice], self._number[choice]
        pieces, orders = [], []
        for k, block in enumerate(self.kinds.values()):
            images = (kind == k).nonzero().flatten()
            if len(images):
                pieces.append(block(take(x, images.to(x.device)), number[images]))
                orders.append(images)
        return take(cat(pieces), torch.argsort(torch.cat(orders)).to(x.device))

    def mixed(self, x: Tensor, weights: Tensor) -> Tensor:
        pieces = [
            cast(ElasticBlock, block).mixed(x, weights[self._members[code]]) for code, block in self.kinds.items()
        ]
        return torch.stack(pieces).sum(0)

    def views(self, config: int) -> Iterator[tuple[str, Tensor]]:
        code, number = self._home[config]
        return cast(ElasticBlock, self.kinds[code]).views(number)

    def sort_channels(self) -> None:
        for block in self.kinds.values():
            cast(ElasticBlock, block).sort_channels()
