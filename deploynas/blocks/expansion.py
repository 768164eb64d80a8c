"""What blocks that widen their input, look around in it and narrow it again have in common.

Three choices: the expansion ratio, the kernel, and the ratio of squeeze-and-excitation (0: none). Channel arithmetic
follows timm, so every such block is also one of timm's.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar, TypedDict, TypeVar

from pydantic import AfterValidator, Field

from deploynas.blocks.geometry import make_divisible, timm_code
from deploynas.blocks.kind import BlockConfig, BlockLists
from deploynas.blocks.operators import Operators, Tensor
from deploynas.blocks.part import Place
from deploynas.errors import InputError

Config = TypeVar("Config", bound="ExpansionConfig")
Number = TypeVar("Number", int, float)


def odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("be odd")
    return value


def _distinct(values: list[Number]) -> list[Number]:
    if len(set(values)) != len(values):
        raise ValueError("not repeat a value")
    return values


Kernel = Annotated[int, Field(ge=1, le=15), AfterValidator(odd)]
Kernels = Annotated[list[Kernel], Field(min_length=1), AfterValidator(_distinct)]
Ratios = Annotated[list[Annotated[float, Field(gt=0, le=16)]], Field(min_length=1), AfterValidator(_distinct)]
Squeezes = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1), AfterValidator(_distinct)]


class ExpansionLists(BlockLists):
    """The levels that a space file offers; every combination is a configuration."""

    ratios: Ratios
    kernels: Kernels
    se: Squeezes = Field(default=[0.0])

    def combinations(self, config: type[Config]) -> tuple[Config, ...]:
        levels = itertools.product(sorted(self.ratios), sorted(self.kernels), sorted(self.se))
        return tuple(config(*choice) for choice in levels)


class Geometry(TypedDict):
    """The fields of `Expansion`."""

    in_channels: int
    mid_channels: int
    out_channels: int
    kernel: int
    stride: int
    se_channels: int
    activation: str
    height: int
    width: int


@dataclass(frozen=True)
class ExpansionConfig(BlockConfig):
    """One configuration of a block: its level of each factor."""

    ratio: float
    kernel: int
    se: float

    def __str__(self) -> str:
        return f"e{self.ratio:g}_k{self.kernel}" + (f"_se{self.se:g}" if self.se else "")

    def levels(self) -> tuple[float, ...]:
        return self.ratio, self.kernel, self.se

    def factors(self) -> dict[str, float]:
        return {"expansion": self.ratio, "kernel": self.kernel, "se": self.se}

    def geometry(self, place: Place) -> Geometry:
        """The fields of the part that this configuration makes there."""
        mid = make_divisible(place.in_channels * self.ratio)
        return {
            "in_channels": place.in_channels,
            "mid_channels": mid,
            "out_channels": place.out_channels,
            "kernel": self.kernel,
            "stride": place.stride,
            "se_channels": make_divisible(mid * self.se) if self.se else 0,
            "activation": place.activation,
            "height": place.height,
            "width": place.width,
        }

    def notation(self, place: Place) -> str:
        text = f"{self.code}_r1_k{self.kernel}_s{place.stride}_e{self.ratio:g}_c{place.out_channels}"
        return text + f"_n{timm_code(place.activation)}" + (f"_se{self.se:g}" if self.se else "")

    @classmethod
    def from_notation(cls: type[Config], options: Mapping[str, float]) -> Config:
        """`e` is 1 and `se` is 0 where they are not written."""
        return cls(options.get("e", 1.0), int(options.get("k", 0)), options.get("se", 0.0))

    def record(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_record(cls: type[Config], record: Mapping[str, float]) -> Config:
        try:
            return cls(float(record["ratio"]), int(record["kernel"]), float(record["se"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a configuration of a `{cls.code}` block: {error}") from error


@dataclass(frozen=True)
class Expansion(ABC):
    """The geometry of such a block: everything its latency depends on."""

    role: ClassVar[str] = "block"
    in_channels: int
    mid_channels: int
    out_channels: int
    kernel: int
    stride: int
    se_channels: int  # 0: no squeeze-and-excitation
    activation: str
    height: int  # of the input
    width: int

    @property
    def residual(self) -> bool:
        return self.stride == 1 and self.in_channels == self.out_channels

    def write(self, to: Operators, name: str, x: Tensor) -> Tensor:
        y = self._widen(to, name, x)
        if self.se_channels:
            gate = to.global_pool(f"{name}/se/pool", y)
            gate = to.conv(f"{name}/se/reduce", gate, self.se_channels, activation="relu", norm=False)
            gate = to.conv(f"{name}/se/expand", gate, self.mid_channels, activation="hard_sigmoid", norm=False)
            y = to.scale(f"{name}/se/scale", y, gate)
        y = to.conv(f"{name}/project", y, self.out_channels)
        return to.add(f"{name}/add", x, y) if self.residual else y

    @abstractmethod
    def _widen(self, to: Operators, name: str, x: Tensor) -> Tensor:
        """From the input to `mid_channels`, the kernel and the stride applied."""

    def words(self) -> str:
        ratio = self.mid_channels / self.in_channels
        return f"{self.kernel}×{self.kernel}, expand ×{ratio:.3g}" + (", SE" if self.se_channels else "")
