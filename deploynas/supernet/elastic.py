"""The pieces that elastic blocks of every kind are made of: weights of which a configuration uses the first part."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.errors import InputError

INACTIVE = -1  # the choice of an image whose depth does not reach a block
_ACTIVATIONS = {"relu": F.relu, "relu6": F.relu6, "hard_swish": F.hardswish, "swish": F.silu}


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    if name not in _ACTIVATIONS:
        raise InputError(f"no activation `{name}`", hint=f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


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

    def forward(self, pooled: Tensor, reduced: int, mask: Tensor | None = None) -> Tensor:
        """The gates (images, channels) for globally pooled features of the same shape."""
        mid, reduce, expand = pooled.shape[1], self.conv_reduce, self.conv_expand
        hidden = F.relu(F.linear(pooled, reduce.weight[:reduced, :mid, 0, 0], reduce.bias[:reduced]))
        if mask is not None:  # images that differ in how many reduced channels they have
            hidden = hidden * mask
        return F.hardsigmoid(F.linear(hidden, expand.weight[:mid, :reduced, 0, 0], expand.bias[:mid]))


def masks(sizes: list[int], largest: int) -> Tensor:
    """Rows of as many ones as each size says."""
    return (torch.arange(largest) < torch.tensor(sizes)[:, None]).float()


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """A 1x1 convolution as a matrix product: no kernel has to be prepared for every new number of images."""
    return F.linear(x.permute(0, 2, 3, 1), weight[:, :, 0, 0]).permute(0, 3, 1, 2)


def cat(pieces: Iterable[Tensor]) -> Tensor:
    """One tensor of all pieces; a single piece is not copied."""
    first, *others = pieces
    return torch.cat([first, *others]) if others else first


def take(x: Tensor, images: Tensor) -> Tensor:
    """`x[images]`; through the channels-last view, since indexing itself forgets the memory format."""
    return x.permute(0, 2, 3, 1).index_select(0, images).permute(0, 3, 1, 2)


def add(x: Tensor, images: Tensor, y: Tensor) -> Tensor:
    """x with y added to the images given: shortcut and depth gate at once."""
    return x.permute(0, 2, 3, 1).index_add(0, images, y.permute(0, 2, 3, 1).to(x.dtype)).permute(0, 3, 1, 2)
