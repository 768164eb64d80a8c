"""A trained network that can be pruned, from wherever it comes: one that `finetune` wrote, or a timm model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deploynas.errors import InputError
from deploynas.provenance import Origin, origin
from deploynas.space import Architecture
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.timm_network import as_our_network
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import Data, load_data
from deploynas.training.finetune import NETWORK
from deploynas.training.recipe import Recipe
from deploynas.training.timm_weights import PREFIX, load_timm

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Prunable:
    """A network with the images that it is to be right about."""

    name: str
    model: nn.Module
    architecture: Architecture
    data: Data
    recipe: Recipe  # that it was fine-tuned with, or what suits its space
    source: Origin | None  # the file of its weights


def open_prunable(text: str, data: str | None = None, input_size: int | None = None) -> Prunable:
    """`text` as the command takes it; `data` None: what the network remembers."""
    if text.startswith(PREFIX):
        return _of_timm(text, data, input_size)
    if input_size is not None:
        raise InputError("`--input-size` is for timm's models; a network of ours knows its own")
    place = Path(text)
    path = place / f"{NETWORK}.safetensors" if place.is_dir() else place
    checkpoint = load_checkpoint(path)
    record, architecture = CheckpointRecord.of(checkpoint), checkpoint.architecture
    if architecture is None:
        raise InputError(
            f"{path} holds a supernet, expected one network", hint="`deploynas finetune` makes one of a supernet's"
        )
    if record.untrained:
        raise InputError(f"{path} is untrained: no channel of it is worth more than another")
    wanted = data or record.data_text(path.parent)
    if not wanted:
        raise InputError(f"{path} does not say what it was trained on", hint="give `--data`")
    images = record.normalised(load_data(wanted, checkpoint.space))
    recipe = record.recipe_for(checkpoint.space)
    return Prunable(path.parent.name, checkpoint.model, architecture, images, recipe, origin(path))


def _of_timm(text: str, data: str | None, input_size: int | None) -> Prunable:
    if data is None:
        raise InputError("a timm model does not say what it was trained on", hint="give `--data`")
    weights = load_timm(text, input_size)
    architecture, model = as_our_network(weights.model, weights.name, weights.height, weights.width)
    images = load_data(data, architecture.space)
    if weights.mean and weights.std:
        images = replace(images, mean=weights.mean, std=weights.std)
    recipe = Recipe.for_space(architecture.space.name, None)
    return Prunable(weights.name, model, architecture, images, recipe, origin(weights.file))
