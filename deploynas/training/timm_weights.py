"""timm's models with weights: those that timm keeps, or a file of one's own; and how their images are normalised.

`timm:NAME` takes timm's pretrained weights, `timm:NAME:FILE` weights that were trained on one's own data, whose number
of classes and channels the file itself says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
from timm.models import load_state_dict
from torch import nn

from deploynas.errors import InputError

PREFIX = "timm:"


@dataclass(frozen=True)
class TimmWeights:
    name: str
    file: Path | None
    model: nn.Module
    height: int
    width: int
    mean: tuple[float, ...] | None  # that its images are normalised with; None: as ours are
    std: tuple[float, ...] | None


def load_timm(text: str, input_size: int | None = None) -> TimmWeights:
    """From `timm:NAME` or `timm:NAME:FILE`; at timm's own input size unless one is given."""
    name, _, file = text.removeprefix(PREFIX).partition(":")
    if not timm.is_model(name):
        raise InputError(f"timm has no model `{name}`", hint="`timm:mobilenetv3_large_100`")
    model: Any = _from_file(name, Path(file), input_size) if file else _pretrained(name)
    about = model.pretrained_cfg
    _, height, width = about["input_size"] if input_size is None else (0, input_size, input_size)
    mean, std = (None, None) if file else (tuple(about["mean"]), tuple(about["std"]))
    return TimmWeights(name, Path(file) if file else None, model.eval(), height, width, mean, std)


def _from_file(name: str, file: Path, input_size: int | None) -> nn.Module:
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    try:
        state = load_state_dict(str(file))
        transformer = "patch_embed.proj.weight" in state
        first, last = ("patch_embed.proj", "head") if transformer else ("conv_stem", "classifier")
        classes, channels = len(state[f"{last}.weight"]), state[f"{first}.weight"].shape[1]
        shape: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
        if transformer and input_size is not None:
            shape["img_size"] = input_size  # it has a position for every patch
        model = timm.create_model(name, **shape)
        model.load_state_dict(state)
    except (RuntimeError, ValueError, OSError, KeyError, TypeError) as error:
        raise InputError(f"{file}: not the weights of a model such as timm's `{name}`") from error
    return model


def _pretrained(name: str) -> nn.Module:
    try:
        return timm.create_model(name, pretrained=True)
    except Exception as error:  # whatever a download can end in
        raise InputError(
            f"timm's weights of `{name}` cannot be had: {error}", hint="give a file: `timm:NAME:weights.safetensors`"
        ) from error
