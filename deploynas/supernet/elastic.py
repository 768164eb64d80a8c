"""One searched block with the weights of all its configurations, shared.

Weights are those of the largest configuration: a smaller expansion takes the first channels, a smaller
kernel the centre, a smaller squeeze-and-excitation the first reduced channels. Batch statistics are not
shared, because what reaches a normalisation depends on the choices in front of it: the first two keep a
mean and a variance for every width and kernel, the last for every configuration. Scale and shift are
shared.

A batch of many paths is sorted by configuration, and every width and kernel computes its own images: exact,
without masks, and at the price of the average sub-network instead of the heaviest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.space import Block
from deploynas.supernet.paths import INACTIVE

ACTIVATIONS = {"relu": F.relu, "relu6": F.relu6, "hard_swish": F.hardswish, "swish": F.silu}


class ElasticNorm(nn.Module):
    """Batch norm over the first channels, with several rows of statistics to choose from."""

    running_mean: Tensor
    running_var: Tensor
    eps = 1e-5
    momentum = 0.1

    def __init__(self, rows: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(rows, channels))
        self.register_buffer("running_var", torch.ones(rows, channels))

    def forward(self, x: Tensor, row: int) -> Tensor:
        channels = x.shape[1]
        # a single value a channel has no variance: one image of one pixel is normalised by what is known
        training = self.training and x.numel() > channels
        return F.batch_norm(
            x,
            self.running_mean[row, :channels],
            self.running_var[row, :channels],
            self.weight[:channels],
            self.bias[:channels],
            training,
            self.momentum,
            self.eps,
        )


class _Biased(nn.Conv2d):
    """A 1x1 convolution that has a bias for certain."""

    bias: nn.Parameter

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 1)


class ElasticSqueeze(nn.Module):
    """Squeeze-and-excitation over the first channels, ReLU inside, hard sigmoid gate."""

    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.conv_reduce = _Biased(channels, reduced)
        self.conv_expand = _Biased(reduced, channels)

    def forward(self, pooled: Tensor, reduced: int) -> Tensor:
        """The gates (images, channels) for globally pooled features of the same shape."""
        mid, reduce, expand = pooled.shape[1], self.conv_reduce, self.conv_expand
        hidden = F.relu(F.linear(pooled, reduce.weight[:reduced, :mid, 0, 0], reduce.bias[:reduced]))
        return F.hardsigmoid(F.linear(hidden, expand.weight[:mid, :reduced, 0, 0], expand.bias[:mid]))


class ElasticBlock(nn.Module):
    """An inverted residual block that can be any of `geometries`, its configurations. Named as timm's is."""

    def __init__(self, geometries: Sequence[Block]) -> None:
        super().__init__()
        self.geometries = tuple(geometries)
        any_ = self.geometries[0]
        mid = max(g.mid_channels for g in geometries)
        reduced = max(g.se_channels for g in geometries)
        self.kernel = max(g.kernel for g in geometries)
        self.stride, self.residual = any_.stride, any_.residual
        self.activation = ACTIVATIONS[any_.activation]
        # configurations that differ in squeeze-and-excitation alone are computed together
        shapes = [(g.mid_channels, g.kernel) for g in geometries]
        self.groups = [[c for c, own in enumerate(shapes) if own == shape] for shape in dict.fromkeys(shapes)]
        self.group_of = [list(dict.fromkeys(shapes)).index(shape) for shape in shapes]
        position = torch.tensor([c for group in self.groups for c in group]).argsort()
        self._sort_key = torch.cat([position, torch.tensor([INACTIVE])])  # INACTIVE indexes the last one
        self.conv_pw = nn.Conv2d(any_.in_channels, mid, 1, bias=False)
        self.bn1 = ElasticNorm(len(self.groups), mid)
        self.conv_dw = nn.Conv2d(mid, mid, self.kernel, groups=mid, bias=False)
        self.bn2 = ElasticNorm(len(self.groups), mid)
        self.se = ElasticSqueeze(mid, reduced) if reduced else None
        self.conv_pwl = nn.Conv2d(mid, any_.out_channels, 1, bias=False)
        self.bn3 = ElasticNorm(len(geometries), any_.out_channels)

    def forward(self, x: Tensor, choice: int | Tensor) -> Tensor:
        """`choice` is one configuration for all images, or one an image, where INACTIVE passes it through."""
        if isinstance(choice, int):
            (y,) = self._transform(x, {choice: len(x)})
            return x + y if self.residual else y
        counts = torch.bincount(choice - INACTIVE, minlength=len(self.geometries) + 1).tolist()
        order = torch.argsort(self._sort_key[choice], stable=True)[
            counts[0] :
        ]  # the inactive ones sort first
        if not len(order):
            return x
        order = order.to(x.device, non_blocking=True)
        # gathering and scattering touch only the thin ends of the block, never its wide middle
        rest, pieces = _take(x, order), []
        for group in self.groups:
            members = {c: counts[c + 1] for c in group if counts[c + 1]}
            if members:
                images = sum(members.values())
                pieces += self._transform(rest[:images], members)
                rest = rest[images:]
        y = torch.cat(pieces)
        return _add(x, order, y) if self.residual else _take(y, torch.argsort(order))

    def _transform(self, x: Tensor, members: dict[int, int]) -> list[Tensor]:
        """The block without its shortcut; `members` is {configuration: images} of one group, in order."""
        first = next(iter(members))
        group, mid, kernel = (
            self.group_of[first],
            self.geometries[first].mid_channels,
            self.geometries[first].kernel,
        )
        cut = (self.kernel - kernel) // 2
        centre = self.conv_dw.weight[:mid, :, cut : cut + kernel, cut : cut + kernel]
        x = _pointwise(x, self.conv_pw.weight[:mid])
        x = self.activation(self.bn1(x, group))
        x = F.conv2d(x, centre, stride=self.stride, padding=kernel // 2, groups=mid)
        x = self.activation(self.bn2(x, group))
        x = self._squeeze(x, members)
        x = _pointwise(x, self.conv_pwl.weight[:, :mid])
        pieces = x.split(list(members.values()))
        return [self.bn3(piece, config) for config, piece in zip(members, pieces, strict=True)]

    def _squeeze(self, x: Tensor, members: dict[int, int]) -> Tensor:
        reduced = [self.geometries[config].se_channels for config in members]
        if self.se is None or not any(reduced):
            return x
        pooled = x.mean((2, 3)).split(list(members.values()))
        gates = [self.se(p, r) if r else torch.ones_like(p) for p, r in zip(pooled, reduced, strict=True)]
        return x * torch.cat(gates)[:, :, None, None]


def _pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """A 1x1 convolution as a matrix product: no kernel has to be prepared for every new number of images."""
    return F.linear(x.permute(0, 2, 3, 1), weight[:, :, 0, 0]).permute(0, 3, 1, 2)


def _take(x: Tensor, images: Tensor) -> Tensor:
    """`x[images]`; through the channels-last view, since indexing itself forgets the memory format."""
    return x.permute(0, 2, 3, 1).index_select(0, images).permute(0, 3, 1, 2)


def _add(x: Tensor, images: Tensor, y: Tensor) -> Tensor:
    """x with y added to the images given: shortcut and depth gate at once."""
    return x.permute(0, 2, 3, 1).index_add(0, images, y.permute(0, 2, 3, 1).to(x.dtype)).permute(0, 3, 1, 2)
