"""One searched block with the weights of all its configurations, shared.

Weights are those of the largest configuration: a smaller expansion takes the first channels, a smaller
kernel the centre, a smaller squeeze-and-excitation the first reduced channels. Scale and shift of the
normalisations are shared too. Statistics are, unless what is normalised depends on the block's own choice:
what enters the first normalisation does not, what enters the second depends on the kernel, what enters the
third on the width and on squeeze-and-excitation (of the kernel, the second has already removed mean and
scale).

A batch of many paths is computed at once: images without the block leave it out, those with it are sorted
by kernel, and what an image's own width lacks is masked by the same product that applies its
squeeze-and-excitation. Statistics are those of all images that take part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

    def forward(self, pooled: Tensor, reduced: int, mask: Tensor | None = None) -> Tensor:
        """The gates (images, channels) for globally pooled features of the same shape."""
        mid, reduce, expand = pooled.shape[1], self.conv_reduce, self.conv_expand
        hidden = F.relu(F.linear(pooled, reduce.weight[:reduced, :mid, 0, 0], reduce.bias[:reduced]))
        if mask is not None:  # images that differ in how many reduced channels they have
            hidden = hidden * mask
        return F.hardsigmoid(F.linear(hidden, expand.weight[:mid, :reduced, 0, 0], expand.bias[:mid]))


class ElasticBlock(nn.Module):
    """An inverted residual block that can be any of `geometries`, its configurations. Named as timm's is."""

    widths: Tensor
    reduced: Tensor
    plain: Tensor

    def __init__(self, geometries: Sequence[Block]) -> None:
        super().__init__()
        self.geometries = tuple(geometries)
        any_ = self.geometries[0]
        mid = max(g.mid_channels for g in geometries)
        reduced = max(g.se_channels for g in geometries)
        self.stride, self.residual = any_.stride, any_.residual
        self.activation = ACTIVATIONS[any_.activation]
        self.kernels = sorted({g.kernel for g in geometries})
        # rows of the statistics: of bn2 by kernel, of bn3 by width and squeeze-and-excitation
        self.kernel_row = [self.kernels.index(g.kernel) for g in geometries]
        outputs = [(g.mid_channels, g.se_channels) for g in geometries]
        self.output_row = [sorted(set(outputs)).index(own) for own in outputs]
        self.conv_pw = nn.Conv2d(any_.in_channels, mid, 1, bias=False)
        self.bn1 = ElasticNorm(1, mid)
        self.conv_dw = nn.Conv2d(mid, mid, self.kernels[-1], groups=mid, bias=False)
        self.bn2 = ElasticNorm(len(self.kernels), mid)
        self.se = ElasticSqueeze(mid, reduced) if reduced else None
        self.conv_pwl = nn.Conv2d(mid, any_.out_channels, 1, bias=False)
        self.bn3 = ElasticNorm(len(set(outputs)), any_.out_channels)
        # a row a configuration: which channels it has, and whether it goes without squeeze-and-excitation
        self.register_buffer("widths", _masks([g.mid_channels for g in geometries], mid), persistent=False)
        self.register_buffer("reduced", _masks([g.se_channels for g in geometries], reduced), persistent=False)
        self.register_buffer("plain", torch.tensor([[not g.se_channels] for g in geometries]), persistent=False)
        self._kernel_rows = torch.tensor([*self.kernel_row, INACTIVE])  # INACTIVE indexes the last one
        self._output_rows = torch.tensor(self.output_row)

    def forward(self, x: Tensor, choice: int | Tensor) -> Tensor:
        """`choice` is one configuration for all images, or one an image, where INACTIVE passes it through."""
        if isinstance(choice, int):
            y = self._one(x, choice)
            return x + y if self.residual else y
        rows = self._kernel_rows[choice]
        counts = torch.bincount(rows - INACTIVE, minlength=len(self.kernels) + 1).tolist()
        order = torch.argsort(rows, stable=True)[counts[0] :]  # the inactive ones sort first
        if not len(order):
            return x
        # gathering and scattering touch only the thin ends of the block, never its wide middle
        y, order = self._many(_take(x, order.to(x.device)), choice[order], counts[1:], order)
        return _add(x, order, y) if self.residual else _take(y, torch.argsort(order))

    def _one(self, x: Tensor, config: int) -> Tensor:
        """The block without its shortcut, all images in one configuration, at its own width."""
        geometry, row = self.geometries[config], self.kernel_row[config]
        mid, reduced = geometry.mid_channels, geometry.se_channels
        x = self.activation(self.bn1(_pointwise(x, self.conv_pw.weight[:mid]), 0))
        x = self.activation(self.bn2(self._depthwise(x, row), row))
        if self.se is not None and reduced:
            x = x * self.se(x.mean((2, 3)), reduced)[:, :, None, None]
        return self.bn3(_pointwise(x, self.conv_pwl.weight[:, :mid]), self.output_row[config])

    def _many(self, x: Tensor, choice: Tensor, counts: list[int], order: Tensor) -> tuple[Tensor, Tensor]:
        """The same for images sorted by kernel, at full width with channels masked; and their new order."""
        x = self.activation(self.bn1(_pointwise(x, self.conv_pw.weight), 0))
        x = _cat(
            self.activation(self.bn2(self._depthwise(piece, row), row))
            for row, piece in enumerate(x.split(counts))
            if len(piece)
        )
        configs = choice.to(x.device)
        gates = self.widths[configs]
        if self.se is not None:
            squeezed = self.se(x.mean((2, 3)) * gates, self.se.conv_reduce.out_channels, self.reduced[configs])
            gates = torch.where(self.plain[configs], gates, gates * squeezed)
        x = _pointwise(x * gates[:, :, None, None], self.conv_pwl.weight)
        rows = self._output_rows[choice]
        by_row = torch.argsort(rows, stable=True)
        pieces = _take(x, by_row.to(x.device)).split(torch.bincount(rows).tolist())
        y = _cat(self.bn3(piece, row) for row, piece in enumerate(pieces) if len(piece))
        return y, order[by_row].to(x.device)

    def _depthwise(self, x: Tensor, row: int) -> Tensor:
        kernel, mid = self.kernels[row], x.shape[1]
        padding = kernel // 2
        if kernel > min(x.shape[2:]):
            # a kernel larger than the image: torch's gradient on CPU is 3 to 7 times slower where it has to pad
            x, padding = F.pad(x, [padding] * 4), 0
        return F.conv2d(x, self.kernel_weight(mid, kernel), stride=self.stride, padding=padding, groups=mid)

    def kernel_weight(self, mid: int, kernel: int) -> Tensor:
        """The first channels and the centre of the largest kernel."""
        cut = (self.kernels[-1] - kernel) // 2
        return self.conv_dw.weight[:mid, :, cut : cut + kernel, cut : cut + kernel]


def _masks(sizes: list[int], largest: int) -> Tensor:
    """Rows of as many ones as each size says."""
    return (torch.arange(largest) < torch.tensor(sizes)[:, None]).float()


def _pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """A 1x1 convolution as a matrix product: no kernel has to be prepared for every new number of images."""
    return F.linear(x.permute(0, 2, 3, 1), weight[:, :, 0, 0]).permute(0, 3, 1, 2)


def _cat(pieces: Iterable[Tensor]) -> Tensor:
    """One tensor of all pieces; a single piece is not copied."""
    first, *others = pieces
    return torch.cat([first, *others]) if others else first


def _take(x: Tensor, images: Tensor) -> Tensor:
    """`x[images]`; through the channels-last view, since indexing itself forgets the memory format."""
    return x.permute(0, 2, 3, 1).index_select(0, images).permute(0, 3, 1, 2)


def _add(x: Tensor, images: Tensor, y: Tensor) -> Tensor:
    """x with y added to the images given: shortcut and depth gate at once."""
    return x.permute(0, 2, 3, 1).index_add(0, images, y.permute(0, 2, 3, 1).to(x.dtype)).permute(0, 3, 1, 2)
