"""How a smaller kernel comes out of the largest one of a block: its centre, or the centre times a learned matrix.

With matrices (Once-for-all, Cai et al. 2020, section 3.3) the 5x5 kernel is the centre of the 7x7 one, flattened, times
a 25 x 25 matrix, and the 3x3 kernel the centre of *that* times a 9 x 9 one. All channels of a block share its matrices,
so they stay as they are when channels are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deploynas.errors import InputError

KernelRule = Literal["centre", "matrices"]


def require_kernel_rule(rule: str) -> None:
    if rule not in get_args(KernelRule):
        raise InputError(f"no rule for smaller kernels `{rule}`", hint=f"one of {', '.join(get_args(KernelRule))}")


def centre(weight: Tensor, kernel: int) -> Tensor:
    """The middle of a kernel: a view of it."""
    cut = (weight.shape[-1] - kernel) // 2
    return weight[:, :, cut : cut + kernel, cut : cut + kernel]


class KernelMatrices(nn.Module):
    """A matrix from each size of kernel to the next smaller one; at first nothing but the centre is taken."""

    def __init__(self, kernels: Sequence[int]) -> None:
        super().__init__()
        self.steps = [(larger, smaller) for smaller, larger in pairwise(sorted(kernels))][::-1]  # 7 to 5, 5 to 3
        for larger, smaller in self.steps:
            self.register_parameter(_name(larger, smaller), nn.Parameter(torch.eye(smaller**2)))

    def matrix(self, larger: int, smaller: int) -> nn.Parameter:
        return self.get_parameter(_name(larger, smaller))

    def forward(self, weight: Tensor, kernel: int) -> Tensor:
        """The kernel of that size, of a weight that has the largest; that one itself comes back as it is."""
        for larger, smaller in self.steps:
            if larger <= kernel:
                break
            flat = centre(weight, smaller).flatten(2)
            weight = F.linear(flat, self.matrix(larger, smaller)).unflatten(2, (smaller, smaller))
        return weight


def _name(larger: int, smaller: int) -> str:
    return f"from{larger}to{smaller}"
