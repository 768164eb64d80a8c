"""The one-shot network of a space of stages: elastic blocks between a stem and a head.

Modules carry timm's names, so that a sub-network's weights are slices of equally named ones, or, where its
`kernel_rule` is "matrices", computed from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import torch
from timm.layers import BatchNormAct2d, get_act_layer
from timm.models._efficientnet_blocks import ConvBnAct, DepthwiseSeparableConv
from timm.models._efficientnet_builder import efficientnet_init_weights
from torch import Tensor, nn

from deploynas.space import Architecture, Space
from deploynas.space.structure import of_stages
from deploynas.supernet.batch_norm import set_norm_eps
from deploynas.supernet.expansion import ElasticExpansion
from deploynas.supernet.kernels import KernelRule
from deploynas.supernet.network import Supernet
from deploynas.supernet.searched_block import ElasticBlock, elastic_block


class StageSupernet(Supernet):
    def __init__(self, space: Space, kernel_rule: KernelRule = "centre") -> None:
        super().__init__(space, kernel_rule)
        space = of_stages(space)
        stem, first, head = space.stem, space.first, space.head
        self.conv_stem = nn.Conv2d(stem.in_channels, stem.out_channels, 3, stem.stride, padding=1, bias=False)
        self.bn1 = BatchNormAct2d(stem.out_channels, act_layer=get_act_layer(stem.activation))
        self.blocks = nn.ModuleList()
        if first:
            separable = partial(DepthwiseSeparableConv, act_layer=get_act_layer(first.activation))
            shape = (first.in_channels, first.out_channels, first.kernel, first.stride)
            self.blocks.append(nn.Sequential(separable(*shape)))
        for s, stage in enumerate(space.stages):
            configs = range(len(stage.configs))
            blocks = [[space.block(s, b, c) for c in configs] for b in range(stage.max_depth)]
            self.blocks.append(nn.ModuleList(elastic_block(stage.configs, parts) for parts in blocks))
        if kernel_rule == "matrices":
            for block in self.modules():
                if isinstance(block, ElasticExpansion):
                    block.learn_kernels()
        last = ConvBnAct(head.in_channels, head.features, 1, act_layer=get_act_layer(head.activation))
        self.blocks.append(nn.Sequential(last))
        hidden = partial(nn.Conv2d, head.features, kernel_size=1, bias=head.hidden_bias)
        self.conv_head = hidden(head.hidden) if head.hidden else nn.Identity()
        self.act2 = get_act_layer(head.activation)() if head.hidden else nn.Identity()
        self.classifier = nn.Linear(head.hidden or head.features, head.classes)
        efficientnet_init_weights(self)
        set_norm_eps(self, space.norm_eps)

    @property
    def _fixed_before(self) -> int:
        """How many of the groups of blocks come before the searched ones."""
        return 1 if of_stages(self.space).first else 0

    @property
    def stages(self) -> list[list[ElasticBlock]]:
        """The searched blocks: [stage][block]."""
        searched = list(self.blocks)[self._fixed_before : -1]
        return [cast("list[ElasticBlock]", list(cast(nn.ModuleList, stage))) for stage in searched]

    def sort_channels(self) -> None:
        """Put the expansion channels that matter most first, as smaller expansions take the first ones.

        No output of the heaviest network changes. Once-for-all does the same (Cai et al. 2020, section 3.3).
        """
        for stage in self.stages:
            for block in stage:
                block.sort_channels()

    def _logits(self, images: Tensor, choices: Sequence[Sequence[int | Tensor]]) -> Tensor:
        x = self.enter(images)
        for stage, chosen in zip(self.stages, choices, strict=True):
            for block, choice in zip(stage, chosen, strict=False):
                x = block(x, choice)
        return self.leave(x)

    def mixed(self, images: Tensor, weights: Tensor) -> Tensor:
        """Every block is the sum of its configurations, every stage that of its depths."""
        stages, decisions = of_stages(self.space).stages, self.space.decisions
        x = self.enter(images)
        for s, stage in enumerate(self.stages):
            ends = []
            for b, block in enumerate(stage):
                x = block.mixed(x, weights[decisions.slices[decisions.column(s, b)]])
                if b + 1 in stages[s].depths:
                    ends.append(x)
            depths = weights[decisions.slices[s]]
            x = torch.stack([depths[i] * end for i, end in enumerate(ends)]).sum(0)
        return self.leave(x)

    def enter(self, images: Tensor) -> Tensor:
        """What comes before the searched blocks."""
        x = self.bn1(self.conv_stem(images))
        return self.blocks[0](x) if self._fixed_before else x

    def leave(self, x: Tensor) -> Tensor:
        """What comes after them: logits."""
        x = self.blocks[-1](x)
        x = self.act2(self.conv_head(x.mean((2, 3), keepdim=True)))
        return self.classifier(x.flatten(1))

    def views(self, architecture: Architecture) -> Iterator[tuple[str, Tensor]]:
        """timm's names for the sub-network's tensors, and where they are."""
        stages, offset = self.stages, self._fixed_before
        own = {name: module for name, module in self.named_children() if name != "blocks"}
        fixed = {
            f"blocks.{i}": blocks for i, blocks in enumerate(self.blocks) if not offset <= i < offset + len(stages)
        }
        for prefix, module in {**own, **fixed}.items():
            for name, tensor in module.state_dict(keep_vars=True).items():
                if not name.endswith("num_batches_tracked"):
                    yield f"{prefix}.{name}", tensor.data
        for s, b, c in architecture.blocks():
            for name, view in stages[s][b].views(c):
                yield f"blocks.{s + offset}.{b}.{name}", view.data
