"""What a space file of stages may say: the YAML form of `StageSpace`, with every rule it must obey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, model_validator

from deploynas.blocks import KINDS, BlockConfig
from deploynas.blocks.expansion import Kernel, Kernels, Ratios, Squeezes
from deploynas.blocks.geometry import Activation
from deploynas.blocks.kind import BlockLists
from deploynas.blocks.registry import DEFAULT_KIND


def _multiple_of_8(value: int) -> int:
    # timm's builder rounds widths to multiples of 8; a width it would change could not be rebuilt there
    if value % 8:
        raise ValueError("be a multiple of 8")
    return value


def _rising(values: list) -> list:
    if values != sorted(set(values)):
        raise ValueError("be strictly rising")
    return values


Width = Annotated[int, Field(ge=8, le=8192), AfterValidator(_multiple_of_8)]
Size = Annotated[int, Field(ge=8, le=4096)]
Depth = Annotated[int, Field(ge=1, le=64)]
Stride = Literal[1, 2]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputFile(_Strict):
    """One input size, `height` and `width`, or square ones to choose from, `sizes`."""

    channels: int = Field(ge=1, le=64)
    height: Size | None = None
    width: Size | None = None
    sizes: Annotated[list[Size], Field(min_length=1, max_length=64), AfterValidator(_rising)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> InputFile:
        given = [name for name in ("height", "width") if getattr(self, name) is not None]
        if self.sizes is None and len(given) < 2:
            raise ValueError("have `height` and `width`, or `sizes`")
        if self.sizes is not None and given:
            raise ValueError(f"have `sizes`, or {' and '.join(f'`{name}`' for name in given)}, not both")
        return self

    def largest(self) -> tuple[int, int]:
        """Height and width."""
        if self.sizes is not None:
            return self.sizes[-1], self.sizes[-1]
        assert self.height is not None and self.width is not None
        return self.height, self.width

    def open_sizes(self) -> tuple[int, ...]:
        """One size is nothing to choose from."""
        return tuple(self.sizes) if self.sizes and len(self.sizes) > 1 else ()


class StemFile(_Strict):
    out: Width
    stride: Stride = 2
    activation: Activation = "hard_swish"


class FirstFile(_Strict):
    out: Width
    kernel: Kernel = 3
    stride: Stride = 1
    activation: Activation = "relu"


if TYPE_CHECKING:
    BlocksFile = BlockLists
else:
    # one of the kinds, told apart by its key `kind`
    BlocksFile = Annotated[Union[tuple(kind.lists for kind in KINDS.values())], Discriminator("kind")]  # noqa: UP007


class StageFile(_Strict):
    """`blocks` lists what a block may be, kind by kind; `ratios`, `kernels` and `se` on the stage itself are short for
    one entry of the default kind.
    """

    out: Width
    stride: Stride
    activation: Activation
    depths: Annotated[list[Depth], Field(min_length=1), AfterValidator(_rising)]
    ratios: Ratios | None = None
    kernels: Kernels | None = None
    se: Squeezes | None = None
    blocks: Annotated[list[BlocksFile], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> StageFile:
        short = [name for name in ("ratios", "kernels", "se") if getattr(self, name) is not None]
        if self.blocks is not None and short:
            raise ValueError(f"have `blocks`, or {', '.join(f'`{name}`' for name in short)} of its own, not both")
        if self.blocks is None and not {"ratios", "kernels"} <= set(short):
            raise ValueError("have `ratios` and `kernels`, or `blocks`")
        if len(set(self.configs())) < len(self.configs()):
            raise ValueError("not offer the same configuration twice")
        return self

    def configs(self) -> tuple[BlockConfig, ...]:
        if self.blocks is not None:
            return tuple(config for lists in self.blocks for config in lists.configs())
        short = self.model_dump(include={"ratios", "kernels", "se"}, exclude_none=True)
        return KINDS[DEFAULT_KIND].lists.model_validate(short).configs()


class HeadFile(_Strict):
    features: Width
    hidden: int | None = Field(default=None, ge=1, le=65536)
    hidden_bias: bool = True
    activation: Activation = "hard_swish"

    @model_validator(mode="after")
    def _bias_of_something(self) -> HeadFile:
        if self.hidden is None and not self.hidden_bias:
            raise ValueError("have `hidden` where it has `hidden_bias`")
        return self


class SpaceFile(_Strict):
    schema_: Literal["deploynas/space"] = Field(default="deploynas/space", alias="schema")
    schema_version: Literal[1] = 1
    kind: Literal["stages"] = "stages"
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    input: InputFile
    classes: int = Field(ge=1, le=1_000_000)
    stem: StemFile
    first: FirstFile | None = None
    stages: list[StageFile] = Field(min_length=1, max_length=64)
    head: HeadFile
    norm_eps: float = Field(default=1e-5, gt=0, le=0.1)
