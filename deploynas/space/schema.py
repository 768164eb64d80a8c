"""What a space file may say: the YAML form of `deploynas.space.Space`, with every rule it must obey."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Activation = Literal["relu", "relu6", "hard_swish", "swish"]


def _multiple_of_8(value: int) -> int:
    # timm's builder rounds widths to multiples of 8; a width it would change could not be rebuilt there
    if value % 8:
        raise ValueError("be a multiple of 8")
    return value


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("be odd")
    return value


def _distinct(values: list) -> list:
    if len(set(values)) != len(values):
        raise ValueError("not repeat a value")
    return values


def _rising(values: list) -> list:
    if values != sorted(set(values)):
        raise ValueError("be strictly rising")
    return values


Width = Annotated[int, Field(ge=8, le=8192), AfterValidator(_multiple_of_8)]
Kernel = Annotated[int, Field(ge=1, le=15), AfterValidator(_odd)]
Ratio = Annotated[float, Field(gt=0, le=16)]
Squeeze = Annotated[float, Field(ge=0, le=1)]
Depth = Annotated[int, Field(ge=1, le=64)]
Stride = Literal[1, 2]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputFile(_Strict):
    channels: int = Field(ge=1, le=64)
    height: int = Field(ge=8, le=4096)
    width: int = Field(ge=8, le=4096)


class StemFile(_Strict):
    out: Width
    stride: Stride = 2
    activation: Activation = "hard_swish"


class FirstFile(_Strict):
    out: Width
    kernel: Kernel = 3
    stride: Stride = 1
    activation: Activation = "relu"


class StageFile(_Strict):
    out: Width
    stride: Stride
    activation: Activation
    depths: Annotated[list[Depth], Field(min_length=1), AfterValidator(_rising)]
    ratios: Annotated[list[Ratio], Field(min_length=1), AfterValidator(_distinct)]
    kernels: Annotated[list[Kernel], Field(min_length=1), AfterValidator(_distinct)]
    se: Annotated[list[Squeeze], Field(min_length=1), AfterValidator(_distinct)] = [0.0]


class HeadFile(_Strict):
    features: Width
    hidden: int | None = Field(default=None, ge=1, le=65536)
    activation: Activation = "hard_swish"


class SpaceFile(_Strict):
    schema_: Literal["deploynas/space"] = Field(default="deploynas/space", alias="schema")
    schema_version: Literal[1] = 1
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    input: InputFile
    classes: int = Field(ge=1, le=1_000_000)
    stem: StemFile
    first: FirstFile | None = None
    stages: list[StageFile] = Field(min_length=1, max_length=64)
    head: HeadFile
