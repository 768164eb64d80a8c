"""The one-shot network: every architecture of a space in one set of shared weights.

`supernet(images, paths)` sends every image along its own path in one pass; `supernet(images, architecture)`
runs one sub-network; `supernet(images)` the heaviest. Where the space leaves the input size open, images come at any
size and are brought to that of their path. What it is made of depends on the kind of space: `Supernet(space)` makes
the one of `stage_network.py` or of `cell_network.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deploynas.errors import InputError
from deploynas.space import Architecture, CellSpace, Space, StageSpace
from deploynas.supernet.checkpoint_file import read_checkpoint, write_checkpoint
from deploynas.supernet.elastic import cat, take
from deploynas.supernet.input_size import resized
from deploynas.supernet.kernels import KernelRule, require_kernel_rule
from deploynas.supernet.paths import block_choices


class Supernet(nn.Module):
    classifier: nn.Linear

    def __new__(cls, space: Space | None = None, *rest: object, **options: object) -> Supernet:
        # as `pathlib.Path` does; copies are made without arguments, and of a kind that is known
        return super().__new__(cls if space is None or cls is not Supernet else _kind(space))

    def __init__(self, space: Space, kernel_rule: KernelRule = "centre") -> None:
        super().__init__()
        require_kernel_rule(kernel_rule)
        self.space, self.kernel_rule = space, kernel_rule
        self._heaviest = space.heaviest()

    def sort_channels(self) -> None:
        """Put what matters most first, where smaller options take the first part; no output may change."""
        raise NotImplementedError

    def views(self, architecture: Architecture) -> Iterator[tuple[str, Tensor]]:
        """The names of a sub-network's tensors when it stands alone, and where they are here."""
        raise NotImplementedError

    def mixed(self, images: Tensor, weights: Tensor) -> Tensor:
        """Logits where every decision is a sum of its options, by the weights of a vector of decisions.

        With one-hot weights it computes what the network of these choices computes; unlike that network it has a
        derivative by the weight of every option, those that are not taken included.
        """
        raise NotImplementedError

    def _logits(self, images: Tensor, choices: Sequence[Sequence[int | Tensor]]) -> Tensor:
        """`choices[g][i]`: one option for all images, or one per image, where INACTIVE takes no part."""
        raise NotImplementedError

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

    def _choices(self, paths: Tensor | Architecture | None, images: int) -> Sequence[Sequence[int | Tensor]]:
        """[group][choice] -> one option or one per image; choices beyond one architecture's depth are left out."""
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


def require_mixable(space: Space) -> None:
    """Refuse a space whose decisions are not all of a kind that weights can mix."""
    if space.sizes:
        raise InputError(
            f"space `{space.name}` leaves the input size open, which no weights of choices can mix",
            hint="copy its YAML file and give `input` one size",
        )


def _kind(space: Space) -> type[Supernet]:
    match space:
        case StageSpace():
            name = "stage_network", "StageSupernet"
        case CellSpace():
            name = "cell_network", "CellSupernet"
        case _:
            raise InputError(f"no supernet for spaces such as `{space.name}`")
    return getattr(importlib.import_module(f"deploynas.supernet.{name[0]}"), name[1])
