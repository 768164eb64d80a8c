"""How to train: optimisation, augmentation and schedule of both phases, as a YAML file (METHODS: training).

`fashion` is fast, `imagenet` is the paper's. Any value can be changed by its dotted name, `w_h.epochs=3`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from deploynas.errors import InputError
from deploynas.files import mistakes_of, read_yaml
from deploynas.parsing import yaml_of

PRESETS = ("fashion", "imagenet")

# what decides how one sub-network is fine-tuned
FINETUNE_KEYS = {"seed", "precision", "augmentation", "finetune", "recalibration_images"}
# what decides how long training takes and what is told of it, or belongs to fine-tuning
NOT_OF_TRAINING = {"description", "checkpoint_every_s", "workers", "report_networks", "finetune", "int8"}
Probability = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Augmentation(_Strict):
    flip: Probability = 0.5
    crop_padding: int = Field(default=0, ge=0, le=64)  # of images in memory: zeros around, random crop
    crop_scale: tuple[float, float] = (0.08, 1.0)  # of files: the share of the area that a random crop keeps
    auto_augment: str | None = None  # timm's notation: original, v0, rand-m9-mstd0.5, …; image by image
    random_erasing: Probability = 0.0


class Distillation(_Strict):
    weight: Probability = 0.5  # of the teacher's word against the label's
    temperature: float = Field(default=1.0, gt=0)


class Schedule(_Strict):
    """One run of the loop."""

    epochs: int = Field(ge=1)
    batch: int = Field(ge=2)  # over all processes together
    lr: float = Field(gt=0)
    optimizer: str = "sgd"  # any of timm's; `sgd` is Nesterov's
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    scheduler: Literal["cosine"] = "cosine"
    warmup_epochs: float = Field(default=0, ge=0)
    min_lr: float = Field(default=0, ge=0)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    clip_grad: float | None = Field(default=None, gt=0)
    ema_decay: float = Field(default=0.999, ge=0, lt=1)  # 0: no averaging
    validate_every_epochs: int = Field(default=1, ge=1)


class OneShotSchedule(Schedule):
    paths: Literal["multi", "single"] = "multi"  # a random sub-network an image, or a batch
    # the share of the images (or batches) that takes the heaviest network; an equal share takes the smallest
    sandwich: float = Field(default=0.0, ge=0, le=0.5)
    distillation: Distillation | None = None  # from w_h, on the same images


class FineTuning(Schedule):
    """Of one sub-network, from the weights it inherits."""

    epochs: int = Field(default=6, ge=1)
    batch: int = Field(default=64, ge=2)
    lr: float = Field(default=0.02, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)  # the teacher smooths better
    distillation: Distillation = Distillation(weight=0.5, temperature=2.0)  # from w_h or another teacher


class QuantizedTuning(_Strict):
    """Of a fine-tuned network in 8 bits; what is not said here is as in fine-tuning."""

    epochs: int | None = Field(default=None, ge=1)  # None: a tenth of those of fine-tuning
    lr: float = Field(default=0.005, gt=0)
    clip_grad: float | None = Field(default=1.0, gt=0)
    ranges: Literal["learned", "held"] = "learned"  # of activations: what calibration found may move, or may not


class Recipe(_Strict):
    schema_: Literal["deploynas/recipe"] = Field(default="deploynas/recipe", alias="schema")
    schema_version: Literal[1] = 1
    description: str = ""
    seed: int = Field(default=0, ge=0, lt=2**32)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"  # auto: mixed on a GPU, fp32 on a CPU
    workers: int = Field(default=0, ge=0)  # processes that read files
    checkpoint_every_s: float = Field(default=30, ge=0)
    augmentation: Augmentation = Augmentation()
    w_h: Schedule
    w_star: OneShotSchedule
    finetune: FineTuning = FineTuning()
    int8: QuantizedTuning = QuantizedTuning()
    recalibration_images: int = Field(default=4000, ge=2)
    report_networks: int = Field(default=32, ge=2)  # random sub-networks measured at the end

    @classmethod
    def load(cls, source: str | Path, changes: Sequence[str] = ()) -> Recipe:
        """A preset by name or a file by path, with `key=value` changes."""
        if str(source) in PRESETS:
            with resources.as_file(resources.files("deploynas.training.recipes") / f"{source}.yaml") as path:
                recipe = read_yaml(path, cls)
        elif not Path(source).exists() and not str(source).endswith((".yaml", ".yml")):
            raise InputError(f"no recipe `{source}`", hint=f"{', '.join(PRESETS)}, or the path of a YAML file")
        else:
            recipe = read_yaml(Path(source), cls)
        return recipe.changed(changes)

    @classmethod
    def for_space(cls, space_name: str, source: str | Path | None, changes: Sequence[str] = ()) -> Recipe:
        """A recipe by name or path, or the one that suits the space."""
        return cls.load(source or preset_of(space_name), changes)

    def training_settings(self) -> dict[str, object]:
        """What decides the weights of a supernet."""
        settings = self.model_dump(exclude=NOT_OF_TRAINING)
        if not self.w_star.sandwich:  # runs begun before recipes had it can still be continued
            del settings["w_star"]["sandwich"]
        return settings

    def finetune_settings(self) -> dict[str, JsonValue]:
        """What decides the weights of a fine-tuned network."""
        return self.model_dump(include=FINETUNE_KEYS, mode="json")

    @property
    def int8_schedule(self) -> FineTuning:
        """Of the fine-tuning in 8 bits."""
        tuning, base = self.int8, self.finetune
        epochs = tuning.epochs or max(1, round(base.epochs / 10))
        own = {"epochs": epochs, "lr": tuning.lr, "clip_grad": tuning.clip_grad, "warmup_epochs": 0}
        return base.model_copy(update=own)

    def int8_settings(self) -> dict[str, JsonValue]:
        """What decides the weights of a network that is trained on in 8 bits."""
        return {**self.finetune_settings(), "int8": self.int8.model_dump(mode="json")}

    def changed(self, changes: Sequence[str]) -> Recipe:
        """With `w_h.epochs=3`-like changes, all checked at once."""
        data = self.model_dump(by_alias=True)
        for change in changes:
            key, equals, text = change.partition("=")
            if not equals:
                raise InputError(f"`{change}`: expected key=value", hint="like --set w_h.epochs=3")
            _assign(data, key.strip(), yaml_of(text, f"--set {key.strip()}")[1] if text.strip() else None)
        try:
            return Recipe.model_validate(data)
        except pydantic.ValidationError as error:
            raise InputError("--set: " + "; ".join(mistakes_of(error))) from error


def preset_of(space_name: str) -> str:
    """The preset of the space's name, ImageNet's for Once-for-all's spaces, or the fast one."""
    if space_name in PRESETS:
        return space_name
    return "imagenet" if space_name.startswith("ofa-") else "fashion"


def _assign(data: dict, key: str, value: object) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        if data.get(parent) is None:
            data[parent] = {}
        data = data[parent]
        if not isinstance(data, dict):
            raise InputError(f"--set {key}: `{parent}` has no parts")
    data[last] = value
