"""A searched block that widens and narrows, with the weights of all its configurations, shared.

Weights are those of the largest configuration: a smaller expansion takes the first channels, a smaller kernel the
centre (or what matrices make of it, see `kernels`), a smaller squeeze-and-excitation the first reduced channels. Scale
and shift of the normalisations are shared too. Statistics are, unless what is normalised depends on the block's own
choice: what follows a kernel has a row of statistics per kernel, what leaves the block one per width and
squeeze-and-excitation (of the kernel, the normalisation before has already removed mean and scale).

A batch of many paths is computed at once: images without the block leave it out, those with it are sorted by kernel,
and what an image's own width lacks is masked by the same product that applies its squeeze-and-excitation. Statistics
are those of all images that take part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.blocks.expansion import Expansion
from deploynas.supernet.elastic import (
    INACTIVE,
    ElasticNorm,
    ElasticSqueeze,
    activation_function,
    add,
    cat,
    masks,
    pointwise,
    take,
)
from deploynas.supernet.kernels import KernelMatrices, centre


class ElasticExpansion(nn.Module):
    """A block that can be any of `parts`, its configurations. Its modules are named as timm's are.

    A kind registers `se` (with `_squeeze`), `conv_pwl` and the layers before them, and says how they widen.
    """

    widths: Tensor
    reduced: Tensor
    plain: Tensor
    se: ElasticSqueeze | None
    matrices: KernelMatrices | None
    conv_pwl: nn.Conv2d

    def __init__(self, parts: Sequence[Expansion]) -> None:
        super().__init__()
        self.parts = tuple(parts)
        any_ = self.parts[0]
        self.mid = max(part.mid_channels for part in parts)
        self.stride, self.residual = any_.stride, any_.residual
        self.activation = activation_function(any_.activation)
        self.kernels = sorted({part.kernel for part in parts})
        # rows of the statistics: after a kernel by kernel, of what leaves by width and squeeze-and-excitation
        self.kernel_row = [self.kernels.index(part.kernel) for part in parts]
        outputs = [(part.mid_channels, part.se_channels) for part in parts]
        self.output_row = [sorted(set(outputs)).index(own) for own in outputs]
        # per configuration: which channels it has, and whether it goes without squeeze-and-excitation
        reduced = [part.se_channels for part in parts]
        self.register_buffer("widths", masks([part.mid_channels for part in parts], self.mid), persistent=False)
        self.register_buffer("reduced", masks(reduced, max(reduced)), persistent=False)
        self.register_buffer("plain", torch.tensor([[not channels] for channels in reduced]), persistent=False)
        self._kernel_rows = torch.tensor([*self.kernel_row, INACTIVE])  # INACTIVE indexes the last one
        self._output_rows = torch.tensor(self.output_row)
        self.matrices = None

    def _squeeze(self) -> ElasticSqueeze | None:
        """The module for `se`, if any configuration has one."""
        reduced = self.reduced.shape[1]
        return ElasticSqueeze(self.mid, reduced) if reduced else None

    def _narrow(self) -> tuple[nn.Conv2d, ElasticNorm]:
        """The modules for `conv_pwl` and the normalisation after it."""
        leaving = self.parts[0].out_channels
        return nn.Conv2d(self.mid, leaving, 1, bias=False), ElasticNorm(max(self.output_row) + 1, leaving)

    # -- what a kind adds ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def last_norm(self) -> ElasticNorm:
        """The normalisation of what leaves the block."""

    @property
    @abstractmethod
    def wide_norm(self) -> ElasticNorm:
        """The normalisation after the kernel."""

    @abstractmethod
    def enter(self, x: Tensor, mid: int) -> Tensor:
        """What comes before the kernel, at `mid` channels; the same for images of every kernel."""

    @abstractmethod
    def look(self, x: Tensor, row: int, mid: int) -> Tensor:
        """The kernel of that row with what follows it, up to `mid` wide channels."""

    @abstractmethod
    def own_views(self, config: int) -> Iterator[tuple[str, Tensor]]:
        """timm's names of the tensors besides `se` and `conv_pwl` that a configuration uses, and where they are."""

    @abstractmethod
    def wide_tensors(self) -> Iterator[tuple[Tensor, int]]:
        """Every tensor before `se` that has the wide channels, and in which dimension."""

    # -- what all share -----------------------------------------------------------------------------

    def forward(self, x: Tensor, choice: int | Tensor) -> Tensor:
        """`choice` is one configuration for all images, or one per image, where INACTIVE passes it through."""
        if isinstance(choice, int):
            y = self._one(x, choice)
            return x + y if self.residual else y
        rows = self._kernel_rows[choice]
        counts = torch.bincount(rows - INACTIVE, minlength=len(self.kernels) + 1).tolist()
        order = torch.argsort(rows, stable=True)[counts[0] :]  # the inactive ones sort first
        if not len(order):
            return x
        # gathering and scattering touch only the thin ends of the block, never its wide middle
        y, order = self._many(take(x, order.to(x.device)), choice[order], counts[1:], order)
        return add(x, order, y) if self.residual else take(y, torch.argsort(order))

    def mixed(self, x: Tensor, weights: Tensor) -> Tensor:
        """The sum of all configurations by their weights; of what they share, each takes its first channels."""
        wide = self.enter(x, self.mid)
        seen = [self.look(wide, row, self.mid) for row in range(len(self.kernels))]
        own = (seen[row][:, : part.mid_channels] for row, part in zip(self.kernel_row, self.parts, strict=True))
        y = torch.stack([weights[c] * self._leave(z, c) for c, z in enumerate(own)]).sum(0)
        return x * weights.sum() + y if self.residual else y

    def _one(self, x: Tensor, config: int) -> Tensor:
        """The block without its shortcut, all images in one configuration, at its own width."""
        mid = self.parts[config].mid_channels
        return self._leave(self.look(self.enter(x, mid), self.kernel_row[config], mid), config)

    def _leave(self, x: Tensor, config: int) -> Tensor:
        """What a configuration makes of its wide channels."""
        mid, reduced = x.shape[1], self.parts[config].se_channels
        if self.se is not None and reduced:
            x = x * self.se(x.mean((2, 3)), reduced)[:, :, None, None]
        return self.last_norm(pointwise(x, self.conv_pwl.weight[:, :mid]), self.output_row[config])

    def _many(self, x: Tensor, choice: Tensor, counts: list[int], order: Tensor) -> tuple[Tensor, Tensor]:
        """The same for images sorted by kernel, at full width with channels masked; and their new order."""
        x = self.enter(x, self.mid)
        x = cat(self.look(piece, row, self.mid) for row, piece in enumerate(x.split(counts)) if len(piece))
        configs = choice.to(x.device)
        gates = self.widths[configs]
        if self.se is not None:
            squeezed = self.se(x.mean((2, 3)) * gates, self.se.conv_reduce.out_channels, self.reduced[configs])
            gates = torch.where(self.plain[configs], gates, gates * squeezed)
        x = pointwise(x * gates[:, :, None, None], self.conv_pwl.weight)
        rows = self._output_rows[choice]
        by_row = torch.argsort(rows, stable=True)
        pieces = take(x, by_row.to(x.device)).split(torch.bincount(rows).tolist())
        y = cat(self.last_norm(piece, row) for row, piece in enumerate(pieces) if len(piece))
        return y, order[by_row].to(x.device)

    def convolve(self, x: Tensor, weight: Tensor, groups: int = 1) -> Tensor:
        """With the block's stride and the padding that the kernel needs."""
        kernel = weight.shape[-1]
        padding = kernel // 2
        if kernel > min(x.shape[2:]):
            # a kernel larger than the image: torch's gradient on CPU is 3 to 7 times slower where it has to pad
            x, padding = F.pad(x, [padding] * 4), 0
        return F.conv2d(x, weight, stride=self.stride, padding=padding, groups=groups)

    def learn_kernels(self) -> None:
        """From now on matrices make smaller kernels out of the largest one, instead of its centre as it is."""
        self.matrices = KernelMatrices(self.kernels)

    def of_size(self, weight: Tensor, kernel: int) -> Tensor:
        """The kernel of that size, from a weight with the largest one: a view of it unless there are matrices."""
        return centre(weight, kernel) if self.matrices is None else self.matrices(weight, kernel)

    def views(self, config: int) -> Iterator[tuple[str, Tensor]]:
        """timm's names of all tensors that a configuration uses, and where they are: what a sub-network inherits."""
        part = self.parts[config]
        mid, reduced = part.mid_channels, part.se_channels
        yield from self.own_views(config)
        if self.se is not None and reduced:
            yield "se.conv_reduce.weight", self.se.conv_reduce.weight[:reduced, :mid]
            yield "se.conv_reduce.bias", self.se.conv_reduce.bias[:reduced]
            yield "se.conv_expand.weight", self.se.conv_expand.weight[:mid, :reduced]
            yield "se.conv_expand.bias", self.se.conv_expand.bias[:mid]
        yield "conv_pwl.weight", self.conv_pwl.weight[:, :mid]

    @torch.no_grad()
    def sort_channels(self) -> None:
        """Put the wide channels that matter most first, because smaller expansions take the first ones.

        Batch norm makes activations comparable, so the projection's weights tell what a channel adds.
        """
        importance = (self.conv_pwl.weight.abs().sum((0, 2, 3)) * self.wide_norm.weight.abs()).cpu()
        self.order_channels(importance.argsort(descending=True, stable=True))

    @torch.no_grad()
    def order_channels(self, order: Tensor) -> None:
        """Put the wide channels into this order; the output of the widest configuration does not change."""
        order = order.to(self.conv_pwl.weight.device)
        tensors = [*self.wide_tensors(), (self.conv_pwl.weight, 1)]
        if self.se is not None:
            reduce, expand = self.se.conv_reduce, self.se.conv_expand
            tensors += [(reduce.weight, 1), (expand.weight, 0), (expand.bias, 0)]
        for tensor, dimension in tensors:
            tensor.copy_(tensor.index_select(dimension, order))


def norm_views(name: str, norm: ElasticNorm, row: int, width: int) -> Iterator[tuple[str, Tensor]]:
    """What a configuration uses of a normalisation: its first channels, and one row of the statistics."""
    yield f"{name}.weight", norm.weight[:width]
    yield f"{name}.bias", norm.bias[:width]
    yield f"{name}.running_mean", norm.running_mean[row, :width]
    yield f"{name}.running_var", norm.running_var[row, :width]


def norm_tensors(norm: ElasticNorm) -> Iterator[tuple[Tensor, int]]:
    """Every tensor of a normalisation, and the dimension of its channels."""
    yield from ((norm.weight, 0), (norm.bias, 0), (norm.running_mean, 1), (norm.running_var, 1))
