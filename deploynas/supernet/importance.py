"""Which expansion channels matter most: they come first, because smaller expansions take the first ones.

Sorting changes no output of the heaviest network. Importance is the L1 norm of what a channel can
contribute to its block's output, as in Once-for-all (Cai et al. 2020, section 3.3).
"""

from __future__ import annotations

import torch

from deploynas.supernet.elastic import ElasticBlock
from deploynas.supernet.network import Supernet


@torch.no_grad()
def sort_channels(supernet: Supernet) -> None:
    """Reorder the expansion channels of every block by falling importance, in place."""
    for stage in supernet.stages:
        for block in stage:
            # batch norm makes activations comparable, so the projection's weights tell what a channel adds
            importance = (block.conv_pwl.weight.abs().sum((0, 2, 3)) * block.bn2.weight.abs()).cpu()
            _permute(block, importance.argsort(descending=True, stable=True).to(block.conv_pw.weight.device))


def _permute(block: ElasticBlock, order: torch.Tensor) -> None:
    block.conv_pw.weight.copy_(block.conv_pw.weight[order])
    block.conv_dw.weight.copy_(block.conv_dw.weight[order])
    block.conv_pwl.weight.copy_(block.conv_pwl.weight[:, order])
    for norm in (block.bn1, block.bn2):
        for vector in (norm.weight, norm.bias):
            vector.copy_(vector[order])
        for rows in (norm.running_mean, norm.running_var):
            rows.copy_(rows[:, order])
    if block.se is not None:
        block.se.conv_reduce.weight.copy_(block.se.conv_reduce.weight[:, order])
        block.se.conv_expand.weight.copy_(block.se.conv_expand.weight[order])
        block.se.conv_expand.bias.copy_(block.se.conv_expand.bias[order])
