"""What a kind of block consists of, besides the part it builds: configurations, and how a space file lists them."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from deploynas.blocks.part import Part, Place


class BlockConfig(ABC):
    """One choice of a block: hashable, printed as a short label, its levels listed lightest first by `levels`."""

    code: ClassVar[str]  # of the kind, in timm's notation

    @abstractmethod
    def levels(self) -> tuple[float, ...]:
        """What two configurations of this kind are ordered by, from light to heavy."""

    @abstractmethod
    def factors(self) -> dict[str, float]:
        """What the configuration is made of, by name: insights and shrinkage compare levels of these."""

    @abstractmethod
    def part(self, place: Place) -> Part:
        """The block that this configuration makes there."""

    @abstractmethod
    def notation(self, place: Place) -> str:
        """The same in timm's notation."""

    @classmethod
    @abstractmethod
    def from_notation(cls, options: Mapping[str, float]) -> BlockConfig:
        """From the numbers of timm's notation, by their letters."""

    @abstractmethod
    def record(self) -> dict[str, float]:
        """As plain data, for files."""

    @classmethod
    @abstractmethod
    def from_record(cls, record: Mapping[str, float]) -> BlockConfig:
        """The inverse of `record`; what a later version may have added is ignored."""


class BlockLists(BaseModel):
    """What a space file says about blocks of a kind; it has a field `kind`, the kind's code."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def configs(self) -> tuple[BlockConfig, ...]:
        """Every configuration that the lists offer."""
        raise NotImplementedError


@dataclass(frozen=True)
class Kind:
    """Where a kind lives: `blocks/FILE.py` with NAMEConfig and NAMELists, `supernet/FILE.py` with ElasticNAME.

    What timm's builder does not have, `supernet/FILE.py` also has alone, as NAMEBlock, made from a part.
    """

    file: str
    name: str
    in_timm: bool = True

    @property
    def config(self) -> type[BlockConfig]:
        return self._find("blocks", f"{self.name}Config")

    @property
    def lists(self) -> type[BlockLists]:
        return self._find("blocks", f"{self.name}Lists")

    @property
    def elastic(self) -> type:
        """Imports torch."""
        return self._find("supernet", f"Elastic{self.name}")

    @property
    def alone(self) -> type:
        """The block of a network on its own, where timm has none. Imports torch."""
        return self._find("supernet", f"{self.name}Block")

    def _find(self, package: str, name: str) -> type:
        return getattr(importlib.import_module(f"deploynas.{package}.{self.file}"), name)
