"""The one-shot network: every architecture of a space in one set of shared weights.

`supernet(images, paths)` sends every image along its own path in one pass; `supernet(images, architecture)`
runs one sub-network; `supernet(images)` the heaviest. Where the space leaves the input size open, images come at any
size and are brought to that of their path. Modules carry timm's names, so that a sub-network's weights are slices of
equally named ones, or, where its `kernel_rule` is "matrices", computed from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from timm.layers import BatchNormAct2d, get_act_layer
from timm.models._efficientnet_blocks import ConvBnAct, DepthwiseSeparableConv
from timm.models._efficientnet_builder import efficientnet_init_weights
from torch import Tensor, nn

from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.supernet.batch_norm import set_norm_eps
from deploynas.supernet.checkpoint_file import read_checkpoint, write_checkpoint
from deploynas.supernet.elastic import cat, take
from deploynas.supernet.expansion import ElasticExpansion
from deploynas.supernet.input_size import resized
from deploynas.supernet.kernels import KernelRule, require_kernel_rule
from deploynas.supernet.paths import block_choices
from deploynas.supernet.searched_block import ElasticBlock, elastic_block


class Supernet(nn.Module):
    def __init__(self, space: Space, kernel_rule: KernelRule = "centre") -> None:
        super().__init__()
        require_kernel_rule(kernel_rule)
        self.space, self.kernel_rule = space, kernel_rule
        self._heaviest = space.heaviest()
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
    def stages(self) -> list[list[ElasticBlock]]:
        """The searched blocks: [stage][block]."""
        searched = list(self.blocks)[1 if self.space.first else 0 : -1]
        return [cast("list[ElasticBlock]", list(cast(nn.ModuleList, stage))) for stage in searched]

    def sort_channels(self) -> None:
        """Put the expansion channels that matter most first, as smaller expansions take the first ones.

        No output of the heaviest network changes. Once-for-all does the same (Cai et al. 2020, section 3.3).
        """
        for stage in self.stages:
            for block in stage:
                block.sort_channels()

    def forward(self, images: Tensor, paths: Tensor | Architecture | None = None) -> Tensor:
        """Logits. `paths`: a row of decisions for each image (`as_paths`), or one architecture for all."""
        if not self.space.sizes:
            return self._logits(images, self._choices(paths, len(images)))
        if isinstance(paths, Tensor):
            return self._by_size(images, paths)
        architecture = paths or self._heaviest
        return self._logits(resized(images, architecture.at_its_size.space), self._choices(architecture, len(images)))

    def _by_size(self, images: Tensor, paths: Tensor) -> Tensor:
        """Images of one size after those of another, each along its own path; in the order they came in."""
        pieces, orders = [], []
        for i, space in enumerate(self.space.each_size()):
            own = (paths[:, -1] == i).nonzero().flatten()
            if len(own):
                x = images if len(own) == len(images) else take(images, own.to(images.device))
                pieces.append(self._logits(resized(x, space), self._choices(paths[own], len(own))))
                orders.append(own)
        return cat(pieces)[torch.argsort(torch.cat(orders)).to(images.device)]

    def _logits(self, images: Tensor, choices: Sequence[Sequence[int | Tensor]]) -> Tensor:
        x = self.enter(images)
        for stage, chosen in zip(self.stages, choices, strict=True):
            for block, choice in zip(stage, chosen, strict=False):
                x = block(x, choice)
        return self.leave(x)

    def enter(self, images: Tensor) -> Tensor:
        """What comes before the searched blocks."""
        x = self.bn1(self.conv_stem(images))
        return self.blocks[0](x) if self.space.first else x

    def leave(self, x: Tensor) -> Tensor:
        """What comes after them: logits."""
        x = self.blocks[-1](x)
        x = self.act2(self.conv_head(x.mean((2, 3), keepdim=True)))
        return self.classifier(x.flatten(1))

    def _choices(self, paths: Tensor | Architecture | None, images: int) -> Sequence[Sequence[int | Tensor]]:
        """[stage][block] -> what ElasticBlock takes; blocks beyond one architecture's depth are left out."""
        if not isinstance(paths, Tensor):
            architecture = paths or self._heaviest
            self.space.require_member(architecture)
            return [list(choice) for choice in architecture.stages]
        if len(paths) != images:
            raise InputError(f"{images} images need as many paths, got {len(paths)}")
        return block_choices(self.space, paths)

    def save(self, path: str | Path, about: dict[str, Any] | None = None) -> None:
        """Write `path` (.safetensors) and its JSON sidecar; `about` says what made it."""
        write_checkpoint(Path(path), self, self.space, None, about, self.kernel_rule)

    @classmethod
    def load(cls, path: str | Path) -> Supernet:
        """Read what `save` wrote; the supernet comes back in evaluation mode."""
        saved = read_checkpoint(Path(path))
        if saved.architecture is not None:
            raise InputError(f"{path} holds one network, expected a supernet", hint="`deploynas train` makes one")
        supernet = cls(saved.space, saved.file.kernel_rule)
        saved.fill(supernet)
        return supernet
