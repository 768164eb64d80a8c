"""Which sub-network every image takes, as one integer tensor: a row an image.

The first columns are depth indices, one a stage (into `space.stages[s].depths`); the others are
configuration indices, one a block, in network order (into `space.stages[s].configs`). Configurations of
blocks beyond the depth are not looked at. Paths live on the CPU, where the batch is sorted by them without
waiting for a device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deploynas.errors import InputError
from deploynas.space import Architecture, Space
from deploynas.supernet.elastic import INACTIVE


def path_sizes(space: Space) -> list[int]:
    """The number of options of every column."""
    depths = [len(stage.depths) for stage in space.stages]
    return depths + [len(stage.configs) for stage in space.stages for _ in range(stage.max_depth)]


def random_paths(space: Space, n: int, generator: torch.Generator) -> Tensor:
    """`n` paths, every decision uniform and independent, as `Space.sample` draws them."""
    columns = [torch.randint(size, (n,), generator=generator) for size in path_sizes(space)]
    return torch.stack(columns, dim=1)


def paths_of(space: Space, architectures: Sequence[Architecture]) -> Tensor:
    """The paths that take these architectures, one row each."""
    rows = []
    for architecture in architectures:
        space.require_member(architecture)
        depths = [stage.depths.index(d) for stage, d in zip(space.stages, architecture.depths, strict=True)]
        configs = [
            c
            for stage, choice in zip(space.stages, architecture.choices, strict=True)
            for c in (*choice, *(0,) * (stage.max_depth - len(choice)))
        ]
        rows.append(depths + configs)
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), len(path_sizes(space)))


def architectures_of(space: Space, paths: Tensor) -> list[Architecture]:
    """The inverse of `paths_of`."""
    require_paths(space, paths)
    result = []
    for row in paths.tolist():
        choices, column = [], len(space.stages)
        for stage, depth in zip(space.stages, row, strict=False):
            choices.append(row[column : column + stage.depths[depth]])
            column += stage.max_depth
        result.append(space.architecture(choices))
    return result


def block_choices(space: Space, paths: Tensor) -> list[list[Tensor]]:
    """[stage][block]: every image's configuration there, or INACTIVE where its depth does not reach."""
    choices, column = [], len(space.stages)
    for s, stage in enumerate(space.stages):
        depths = torch.tensor(stage.depths)[paths[:, s]]
        blocks = []
        for b in range(stage.max_depth):
            blocks.append(torch.where(depths > b, paths[:, column], INACTIVE))
            column += 1
        choices.append(blocks)
    return choices


def require_paths(space: Space, paths: Tensor) -> None:
    sizes = torch.tensor(path_sizes(space))
    if paths.dim() != 2 or paths.shape[1] != len(sizes) or paths.is_floating_point():
        raise InputError(
            f"paths of space `{space.name}` are integers of shape (images, {len(sizes)}), "
            f"got {paths.dtype} of shape {tuple(paths.shape)}"
        )
    if bool((paths < 0).any()) or bool((paths >= sizes).any()):
        raise InputError(f"paths hold an index that space `{space.name}` does not have")
