"""Checkpoints of either kind, a supernet or a single sub-network, as models that compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from deploynas.space import Architecture, Space
from deploynas.supernet.checkpoint_file import read_checkpoint, write_checkpoint
from deploynas.supernet.extraction import network_alone
from deploynas.supernet.network import Supernet


@dataclass(frozen=True)
class Checkpoint:
    """What was loaded: a Supernet, or a timm model and its architecture."""

    model: nn.Module
    space: Space
    architecture: Architecture | None
    about: dict[str, Any] = field(default_factory=dict)
    weights_sha256: str = ""


def save_network(
    model: nn.Module, architecture: Architecture, path: str | Path, about: dict[str, Any] | None = None
) -> None:
    """A stand-alone timm model of an architecture, as `Supernet.save` does for a supernet."""
    write_checkpoint(Path(path), model, architecture.space, architecture, about)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read either kind; the model comes back in evaluation mode."""
    saved = read_checkpoint(Path(path))
    one = saved.architecture
    model = Supernet(saved.space, saved.file.kernel_rule) if one is None else network_alone(one)
    return Checkpoint(saved.fill(model), saved.space, saved.architecture, saved.file.about, saved.file.weights_sha256)
