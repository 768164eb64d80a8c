"""Who teaches a sub-network: w_h by default, one of our checkpoints, or any timm model.

`timm:NAME` takes timm's pretrained weights and its own normalisation of images; `timm:NAME:FILE` takes weights that
were trained on this data, normalised as ours are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

from deploynas.errors import InputError
from deploynas.files import sha256_of
from deploynas.provenance import TeacherRecord
from deploynas.space import Space
from deploynas.supernet.checkpoint import load_checkpoint
from deploynas.training.data import Data


class Teacher(nn.Module):
    """A frozen network with a name and the hash of what it is made of."""

    def __init__(self, model: nn.Module, name: str, sha256: str | None) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.name, self.sha256 = name, sha256

    def train(self, mode: bool = True) -> Teacher:
        return self  # it stays in evaluation mode

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)

    def describe(self) -> TeacherRecord:
        return TeacherRecord(name=self.name, sha256=self.sha256)


class _Renormalised(nn.Module):
    """A network that expects images normalised otherwise than ours: x -> x * factor + shift before it."""

    factor: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, data: Data, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        ours_mean, ours_std, mean_, std_ = (torch.tensor(v).view(-1, 1, 1) for v in (data.mean, data.std, mean, std))
        self.model = model
        self.register_buffer("factor", ours_std / std_)
        self.register_buffer("shift", (ours_mean - mean_) / std_)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images * self.factor + self.shift)


def load_teacher(text: str, space: Space, data: Data) -> Teacher:
    """From `timm:NAME`, `timm:NAME:FILE`, or the path of a checkpoint; checked on one image."""
    if text.startswith("timm:"):
        _, name, *file = text.split(":", 2)
        teacher = _timm_teacher(name, file[0] if file else None, space, data)
    else:
        path = Path(text)
        teacher = Teacher(load_checkpoint(path).model, path.stem, sha256_of(path.with_suffix(".safetensors")))
    _require_fit(teacher, space)
    return teacher


def teacher_hash(text: str) -> str:
    """Names a teacher by its weights without loading it; those that timm keeps go by their name."""
    file = text if not text.startswith("timm:") else text.split(":", 2)[2] if text.count(":") > 1 else None
    return text if file is None else sha256_of(Path(file).with_suffix(".safetensors") if file == text else Path(file))


def _timm_teacher(name: str, file: str | None, space: Space, data: Data) -> Teacher:
    if not timm.is_model(name):
        similar = ", ".join(timm.list_models(f"*{name.split('_')[0]}*")[:5])
        raise InputError(f"timm has no model `{name}`", hint=f"similar: {similar}" if similar else None)
    options: dict[str, Any] = {"num_classes": space.classes, "in_chans": space.in_channels}
    if file is not None:
        if not Path(file).is_file():
            raise InputError(f"{file}: no such file")
        try:
            return Teacher(timm.create_model(name, checkpoint_path=file, **options), name, sha256_of(Path(file)))
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(f"{file}: not the weights of timm's `{name}` for {space.classes} classes") from error
    try:
        model: Any = timm.create_model(name, pretrained=True)
    except Exception as error:  # whatever a download can end in
        raise InputError(
            f"timm's weights of `{name}` cannot be had: {error}", hint="give a file: `timm:NAME:weights.safetensors`"
        ) from error
    wanted = model.pretrained_cfg
    classes, channels = wanted["num_classes"], wanted["input_size"][0]
    if (classes, channels) != (space.classes, space.in_channels):
        raise InputError(
            f"timm's `{name}` knows {classes} classes of {channels}-channel images, "
            f"the space has {space.classes} and {space.in_channels}",
            hint="a model that was trained on this data: `timm:NAME:weights.safetensors`",
        )
    return Teacher(_Renormalised(model, data, wanted["mean"], wanted["std"]), name, None)


@torch.no_grad()
def _require_fit(teacher: Teacher, space: Space) -> None:
    image = torch.zeros(1, space.in_channels, space.height, space.width)
    try:
        shape = tuple(teacher(image).shape)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise InputError(f"the teacher `{teacher.name}` cannot take images of this space: {error}") from error
    if shape != (1, space.classes):
        raise InputError(f"the teacher `{teacher.name}` knows {shape[-1]} classes, the space has {space.classes}")
