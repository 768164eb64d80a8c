"""A trained network that can be pruned, from wherever it comes: one that `finetune` wrote, or a timm model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deploynas.errors import InputError
from deploynas.provenance import Origin, origin
from deploynas.space import Architecture, Space, StageSpace
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.supernet.timm_network import as_our_network
from deploynas.supernet.transformer_widths import is_transformer, require_transformer
from deploynas.training.checkpoint_record import CheckpointRecord
from deploynas.training.data import Data, load_data
from deploynas.training.finetune import NETWORK
from deploynas.training.recipe import Recipe
from deploynas.training.timm_weights import PREFIX, TimmWeights, load_timm

if TYPE_CHECKING:
    from torch import nn

# a rate at which networks with batch norm are trained would undo a transformer
TRANSFORMER_RECIPE = ("finetune.optimizer=adamw", "finetune.lr=2e-4", "finetune.weight_decay=0.05")


@dataclass(frozen=True)
class Prunable:
    """A network with the images that it is to be right about."""

    name: str
    model: nn.Module
    architecture: Architecture
    data: Data
    recipe: Recipe  # that it was fine-tuned with, or what suits its space
    source: Origin | None  # the file of its weights


@dataclass(frozen=True)
class PrunableTransformer:
    """The same of timm's vision transformers, whose blocks are none of ours."""

    name: str
    model: nn.Module
    space: Space  # of its images and classes
    data: Data
    recipe: Recipe
    source: Origin | None


def open_prunable(text: str, data: str | None = None, input_size: int | None = None) -> Prunable | PrunableTransformer:
    """`text` as the command takes it; `data` None: what the network remembers."""
    if text.startswith(PREFIX):
        return _of_timm(text, data, input_size)
    if input_size is not None:
        raise InputError("`--input-size` is for timm's models; a network of ours knows its own")
    place = Path(text)
    if not place.exists():
        raise InputError(
            f"{text}: no such file or folder",
            hint="the folder that `finetune` wrote, or `timm:NAME` for a model of timm's",
        )
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


def _of_timm(text: str, data: str | None, input_size: int | None) -> Prunable | PrunableTransformer:
    if data is None:
        raise InputError("a timm model does not say what it was trained on", hint="give `--data`")
    weights = load_timm(text, input_size)
    if is_transformer(weights.model):
        return _transformer(weights, data)
    architecture, model = as_our_network(weights.model, weights.name, weights.height, weights.width)
    images = _normalised(load_data(data, architecture.space), weights)
    recipe = Recipe.for_space(architecture.space.name, None)
    return Prunable(weights.name, model, architecture, images, recipe, origin(weights.file))


def _transformer(weights: TimmWeights, data: str) -> PrunableTransformer:
    model = require_transformer(weights.model, weights.name)
    channels, classes = model.patch_embed.proj.in_channels, model.num_classes
    # of no blocks of ours: it says which images the network takes, and how many classes it knows
    space = StageSpace(
        weights.name, channels, weights.height, weights.width, classes, 8, 1, "relu", None, (), 8, None, "relu"
    )
    recipe = Recipe.load("fashion", TRANSFORMER_RECIPE)
    images = _normalised(load_data(data, space), weights)
    return PrunableTransformer(weights.name, model, space, images, recipe, origin(weights.file))


def _normalised(images: Data, weights: TimmWeights) -> Data:
    return replace(images, mean=weights.mean, std=weights.std) if weights.mean and weights.std else images
