"""A space of stages of blocks, and what its decisions build (METHODS: search space).

There is a fixed stem, an optional fixed first block, stages of searched blocks, and a fixed head. A stage picks its
depth, and each of its blocks picks a configuration of one of the kinds in `blocks/`. Channel arithmetic follows timm,
so every architecture is also a timm model. The input size may be decided too; what a network then builds is that of the
space with its size alone (`Space.at`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pydantic

from deploynas.blocks import BlockConfig, DepthwiseSeparable, Head, Part, Place, Stem
from deploynas.blocks.geometry import strided
from deploynas.blocks.registry import read_config, record_config, weight
from deploynas.errors import InputError
from deploynas.files import mistakes_of, read_yaml
from deploynas.space.architecture import Architecture, part_name
from deploynas.space.decisions import Choice, Decisions, Group, Option
from deploynas.space.notation import from_text as from_timm
from deploynas.space.notation import to_text
from deploynas.space.once_for_all import from_json
from deploynas.space.record import SpaceRecord
from deploynas.space.schema import SpaceFile, StageFile
from deploynas.space.space import Space

INPUT_SIZE = "size"  # the factor by which options of the input differ


@dataclass(frozen=True)
class Stage:
    """One searched stage: up to `depths[-1]` blocks, of which the first carries the stride."""

    out_channels: int
    stride: int
    activation: str
    depths: tuple[int, ...]
    configs: tuple[BlockConfig, ...]

    @property
    def max_depth(self) -> int:
        return self.depths[-1]


@dataclass(frozen=True)
class StageSpace(Space):
    """Stages of blocks between a stem and a head."""

    stem_channels: int
    stem_stride: int
    stem_activation: str
    first: DepthwiseSeparable | None
    stages: tuple[Stage, ...]
    head_features: int
    head_hidden: int | None
    head_activation: str
    head_hidden_bias: bool = True
    norm_eps: float = 1e-5  # what batch norm adds to a variance before it divides
    sizes: tuple[int, ...] = ()  # of a square input, to choose from, rising; empty: there is one

    @classmethod
    def from_yaml(cls, path: Path) -> StageSpace:
        def stage(spec: StageFile) -> Stage:
            return Stage(spec.out, spec.stride, spec.activation, tuple(spec.depths), spec.configs())

        spec = read_yaml(path, SpaceFile)
        first, (input_height, input_width) = None, spec.input.largest()
        if spec.first:
            height, width = (strided(size, spec.stem.stride) for size in (input_height, input_width))
            choices = (spec.first.kernel, spec.first.stride, spec.first.activation)
            first = DepthwiseSeparable(spec.stem.out, spec.first.out, *choices, height, width)
        return cls(
            name=spec.name,
            in_channels=spec.input.channels,
            height=input_height,
            width=input_width,
            classes=spec.classes,
            stem_channels=spec.stem.out,
            stem_stride=spec.stem.stride,
            stem_activation=spec.stem.activation,
            first=first,
            stages=tuple(stage(s) for s in spec.stages),
            head_features=spec.head.features,
            head_hidden=spec.head.hidden,
            head_activation=spec.head.activation,
            head_hidden_bias=spec.head.hidden_bias,
            norm_eps=spec.norm_eps,
            sizes=spec.input.open_sizes(),
        )

    def describe(self) -> dict[str, Any]:
        plain = {own.name: getattr(self, own.name) for own in fields(self) if getattr(self, own.name) != own.default}
        stages = [
            {
                "out_channels": stage.out_channels,
                "stride": stage.stride,
                "activation": stage.activation,
                "depths": list(stage.depths),
                "configs": [record_config(config) for config in stage.configs],
            }
            for stage in self.stages
        ]
        return {**plain, "first": asdict(self.first) if self.first else None, "stages": stages}

    @classmethod
    def from_record(cls, data: Mapping[str, Any]) -> StageSpace:
        try:
            record = SpaceRecord.model_validate(data)
        except pydantic.ValidationError as error:
            raise InputError(f"not a description of a search space: {'; '.join(mistakes_of(error))}") from error
        stages = tuple(
            Stage(s.out_channels, s.stride, s.activation, tuple(s.depths), tuple(read_config(c) for c in s.configs))
            for s in record.stages
        )
        first = DepthwiseSeparable(**vars(record.first)) if record.first else None
        return cls(**{**vars(record), "stages": stages, "first": first, "sizes": tuple(record.sizes)})

    # -- what it is built of --------------------------------------------------------------------
    # of a space that leaves the input size open, all of this is at the largest; `parts` knows a network's own

    def _resized(self, size: int) -> StageSpace:
        after_stem = strided(size, self.stem_stride)
        first = replace(self.first, height=after_stem, width=after_stem) if self.first else None
        return replace(self, height=size, width=size, first=first, sizes=())

    @cached_property
    def stem(self) -> Stem:
        return Stem(
            self.in_channels,
            self.stem_channels,
            self.stem_stride,
            self.stem_activation,
            self.height,
            self.width,
        )

    @cached_property
    def _stage_inputs(self) -> tuple[tuple[int, int, int], ...]:
        """(channels, height, width) into every stage, and into the head as the last."""
        height, width = strided(self.height, self.stem_stride), strided(self.width, self.stem_stride)
        channels = self.stem_channels
        if self.first:
            height, width = strided(height, self.first.stride), strided(width, self.first.stride)
            channels = self.first.out_channels
        inputs = [(channels, height, width)]
        for stage in self.stages:
            height, width = strided(height, stage.stride), strided(width, stage.stride)
            inputs.append((stage.out_channels, height, width))
        return tuple(inputs)

    def block(self, s: int, b: int, c: int) -> Part:
        """Block b of stage s with that stage's configuration c (all counted from 0)."""
        return self._blocks[s][b][c]

    def option_parts(self, g: int, i: int, o: int) -> tuple[Part, ...]:
        return (self._blocks[g][i][o],)

    @cached_property
    def _blocks(self) -> tuple[tuple[tuple[Part, ...], ...], ...]:
        return tuple(
            tuple(tuple(config.part(self.place(s, b)) for config in stage.configs) for b in range(stage.max_depth))
            for s, stage in enumerate(self.stages)
        )

    def place(self, s: int, b: int) -> Place:
        """Where block b of stage s sits, whatever its configuration."""
        stage = self.stages[s]
        channels, height, width = self._stage_inputs[s if b == 0 else s + 1]
        return Place(channels, stage.out_channels, stage.stride if b == 0 else 1, stage.activation, height, width)

    @cached_property
    def head(self) -> Head:
        channels, height, width = self._stage_inputs[-1]
        layers = (self.head_features, self.head_hidden, self.classes, self.head_activation)
        return Head(channels, *layers, height, width, self.head_hidden_bias)

    def fixed_parts(self) -> list[tuple[str, Part]]:
        first: list[tuple[str, Part]] = [("first", self.first)] if self.first else []
        return [("stem", self.stem), *first, ("head", self.head)]

    def parts(self, architecture: Architecture) -> list[tuple[str, Part]]:
        self.require_member(architecture)
        space = of_stages(architecture.at_its_size.space)
        *before, head = space.fixed_parts()
        blocks: list[tuple[str, Part]] = [(part_name(s, b), space.block(s, b, c)) for s, b, c in architecture.blocks()]
        return [*before, *blocks, head]

    # -- architectures --------------------------------------------------------------------------

    def smallest(self) -> Architecture:
        """Fewest blocks, smallest ratio, kernel, squeeze-and-excitation and input everywhere."""
        stages = [[s.configs.index(min(s.configs, key=weight))] * s.depths[0] for s in self.stages]
        return self.architecture([*stages, [0]] if self.sizes else stages)

    def heaviest(self) -> Architecture:
        """Most blocks, largest ratio, kernel, squeeze-and-excitation and input everywhere (the paper's w_h)."""
        stages = [[s.configs.index(max(s.configs, key=weight))] * s.max_depth for s in self.stages]
        return self.architecture([*stages, [len(self.sizes) - 1]] if self.sizes else stages)

    def text(self, architecture: Architecture) -> str:
        """timm's notation."""
        return to_text(architecture)

    def from_text(self, text: str) -> Architecture:
        """From timm's notation, or Once-for-all's JSON."""
        return from_json(text, self) if text.startswith("{") else from_timm(text, self)

    def config(self, g: int, o: int) -> BlockConfig:
        return self.stages[g].configs[o]

    # -- decisions ------------------------------------------------------------------------------

    @cached_property
    def decisions(self) -> Decisions:
        """What is decided, apart from what it builds: a group for every stage, a choice for every block; and behind
        them a group of one choice, the input size, where that is open.
        """
        groups = []
        for s, stage in enumerate(self.stages):
            options = tuple(Option(str(config), tuple(config.factors().items())) for config in stage.configs)
            choices = tuple(Choice(part_name(s, b), options) for b in range(stage.max_depth))
            groups.append(Group(f"stage {s + 1}", stage.depths, choices))
        if self.sizes:
            sizes = tuple(Option(f"{size}x{size}", ((INPUT_SIZE, float(size)),)) for size in self.sizes)
            groups.append(Group("input", (1,), (Choice("input size", sizes),)))
        return Decisions(tuple(groups))


def of_stages(space: Space) -> StageSpace:
    """A space that must be of this kind, for what other kinds do not have."""
    if not isinstance(space, StageSpace):
        raise InputError(f"space `{space.name}` is not made of stages of blocks")
    return space
