"""A space as generated files embed it, so that they can be read without the YAML it came from.

Unknown keys are ignored. What is written is the canonical form that `Space.hash` names: a field that a later version
adds is absent while it has its default, so files and hashes from before stay good.
"""

from __future__ import annotations

from pydantic import BaseModel


class FirstRecord(BaseModel):
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    activation: str
    height: int
    width: int


class StageRecord(BaseModel):
    out_channels: int
    stride: int
    activation: str
    depths: list[int]
    configs: list[dict[str, float | str]]  # `blocks.registry.read_config` reads one


class SpaceRecord(BaseModel):
    name: str
    in_channels: int
    height: int
    width: int
    classes: int
    stem_channels: int
    stem_stride: int
    stem_activation: str
    first: FirstRecord | None
    stages: list[StageRecord]
    head_features: int
    head_hidden: int | None
    head_activation: str
    head_hidden_bias: bool = True
    norm_eps: float = 1e-5
    sizes: list[int] = []  # input sizes to choose from; empty: there is one
