"""What can be built: a search space, and what its decisions build (METHODS: search space).

A space is a fixed stem, an optional fixed first block, stages of searched blocks, and a fixed head. A stage picks its
depth, and each of its blocks picks a configuration of one of the kinds in `blocks/`. Channel arithmetic follows timm,
so every architecture is also a timm model. The input size may be decided too; what a network then builds is that of the
space with its size alone (`Space.at`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from deploynas.blocks import BlockConfig, DepthwiseSeparable, Head, Part, Place, Stem
from deploynas.blocks.geometry import strided
from deploynas.blocks.registry import read_config, record_config, weight
from deploynas.errors import InputError
from deploynas.files import content_hash, mistakes_of, read_yaml
from deploynas.space.architecture import Architecture, part_name
from deploynas.space.decisions import Choice, Decisions, Depths, Group, Option, Ragged
from deploynas.space.record import SpaceRecord
from deploynas.space.schema import SpaceFile, StageFile

INPUT_SIZE = "size"  # the factor by which options of the input differ
PRESETS = ("fashion", "imagenet", "ofa-mbv3", "ofa-mbv3-w1.2", "ofa-proxyless")


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
class Space:
    """A search space: `Space.load("imagenet")`, `Space.load("my-space.yaml")`. Its name does not make it another."""

    name: str = field(compare=False)
    in_channels: int
    height: int
    width: int
    classes: int
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
    def load(cls, source: str | Path) -> Space:
        """A preset by name, or a YAML file by path."""
        if str(source) in PRESETS:
            with resources.as_file(resources.files("deploynas.space.presets") / f"{source}.yaml") as path:
                return cls._from_file(path)
        if not Path(source).exists() and not str(source).endswith((".yaml", ".yml")):
            raise InputError(
                f"no search space `{source}`",
                hint=f"a preset ({', '.join(PRESETS)}) or the path of a YAML file",
            )
        return cls._from_file(Path(source))

    @classmethod
    def _from_file(cls, path: Path) -> Space:
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
        """The whole space as plain data: what files record, and what `from_description` reads back.

        A field that has a default is absent while it is at it, so that a new one changes no hash of a space without it.
        """
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
    def from_description(cls, data: dict[str, Any]) -> Space:
        """The inverse of `describe`, so that a file which embeds its space can be read without the YAML."""
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

    @cached_property
    def hash(self) -> str:
        """Names the space by its content; tables and estimators of other content do not fit it."""
        return content_hash({key: value for key, value in self.describe().items() if key != "name"})

    def require_hash(self, found: str, what: str) -> None:
        """Refuse a file made for another space."""
        if found != self.hash:
            raise InputError(
                f"{what} belongs to another search space (hash {found}, space `{self.name}` has {self.hash})",
                hint="use the space it was made with, or make it again for this one",
            )

    # -- what it is built of --------------------------------------------------------------------
    # of a space that leaves the input size open, all of this is at the largest; `parts` knows a network's own

    def at(self, size: int) -> Space:
        """This space with one input size instead of a choice."""
        if size not in self._at:
            known = ", ".join(str(own) for own in self.sizes) or f"{self.height}x{self.width} alone"
            raise InputError(f"space `{self.name}` has no input size {size}", hint=f"it has {known}")
        return self._at[size]

    @cached_property
    def _at(self) -> dict[int, Space]:
        if not self.sizes:
            return {self.height: self} if self.height == self.width else {}
        return {size: self._resized(size) for size in self.sizes}

    def _resized(self, size: int) -> Space:
        after_stem = strided(size, self.stem_stride)
        first = replace(self.first, height=after_stem, width=after_stem) if self.first else None
        return replace(self, height=size, width=size, first=first, sizes=())

    def each_size(self) -> tuple[Space, ...]:
        """The space at every input size; itself where there is one."""
        return tuple(map(self.at, self.sizes)) if self.sizes else (self,)

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
        """The parts that every architecture shares."""
        first: list[tuple[str, Part]] = [("first", self.first)] if self.first else []
        return [("stem", self.stem), *first, ("head", self.head)]

    def parts(self, architecture: Architecture) -> list[tuple[str, Part]]:
        """The whole network in order, at its input size: names (`stage3/block2`, counted from 1) and geometries."""
        self.require_member(architecture)
        space = architecture.at_its_size.space
        *before, head = space.fixed_parts()
        blocks: list[tuple[str, Part]] = [(part_name(s, b), space.block(s, b, c)) for s, b, c in architecture.blocks()]
        return [*before, *blocks, head]

    # -- architectures --------------------------------------------------------------------------

    def architecture(self, choices: Sequence[Sequence[int]]) -> Architecture:
        """From configuration indices: `choices[s][b]`; a stage's depth is the length of its list.

        Where the input size is open, a last list holds its index among `sizes`.
        """
        return Architecture(self, tuple(tuple(int(c) for c in stage) for stage in choices))

    def sample(self, rng: np.random.Generator) -> Architecture:
        """Every decision uniform and independent (which is not uniform over architectures)."""
        return self.architectures(self.decisions.draw(1, rng))[0]

    def smallest(self) -> Architecture:
        """Fewest blocks, smallest ratio, kernel, squeeze-and-excitation and input everywhere."""
        stages = [[s.configs.index(min(s.configs, key=weight))] * s.depths[0] for s in self.stages]
        return self.architecture([*stages, [0]] if self.sizes else stages)

    def heaviest(self) -> Architecture:
        """Most blocks, largest ratio, kernel, squeeze-and-excitation and input everywhere (the paper's w_h)."""
        stages = [[s.configs.index(max(s.configs, key=weight))] * s.max_depth for s in self.stages]
        return self.architecture([*stages, [len(self.sizes) - 1]] if self.sizes else stages)

    def size(self) -> int:
        """How many architectures there are, exactly."""
        return self.decisions.combinations()

    def enumerate(self) -> Iterator[Architecture]:
        """All architectures; for spaces small enough to want that."""
        return (Architecture(self, choices) for choices in self.decisions.enumerate())

    def require_member(self, architecture: Architecture) -> None:
        if architecture.space is not self and architecture.space != self:
            raise InputError(f"the architecture belongs to space `{architecture.space.name}`, not `{self.name}`")

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

    def rows(self, architectures: Sequence[Architecture]) -> np.ndarray:
        """One row of decisions for each architecture of this space."""
        for architecture in architectures:
            self.require_member(architecture)
        return self.decisions.rows([architecture.choices for architecture in architectures])

    def architectures(self, rows: np.ndarray) -> list[Architecture]:
        """The inverse of `rows`."""
        return [Architecture(self, self.decisions.choices_of(row)) for row in rows]

    def require_blocks(self, values: Sequence, what: str, minimum: float | None = None) -> Ragged:
        """Check an array indexed [stage][block][configuration]; return it as tuples of floats."""
        return self.decisions.require_options(values, what, minimum)

    def require_depths(self, values: Sequence, what: str, minimum: float | None = None) -> Depths:
        """Check an array indexed [stage][depth]; return it as tuples of floats."""
        return self.decisions.require_depths(values, what, minimum)

    def encode(self, architecture: Architecture) -> tuple[np.ndarray, np.ndarray]:
        """One-hot vectors: alpha over (stage, block, configuration), beta over (stage, depth).

        Blocks beyond a stage's depth take no part; their alpha rows are one-hot too, at configuration 0.
        """
        decisions = self.decisions
        vector = decisions.one_hot(self.rows([architecture]))[0, decisions.encoding]
        return vector[: decisions.alphas], vector[decisions.alphas :]

    def decode(self, alpha: np.ndarray, beta: np.ndarray) -> Architecture:
        """The inverse of `encode`. Rows of blocks beyond the depth are not looked at."""
        alpha, beta, decisions = np.asarray(alpha, float), np.asarray(beta, float), self.decisions
        alphas, betas = decisions.alphas, len(decisions) - decisions.alphas
        if alpha.shape != (alphas,) or beta.shape != (betas,):
            raise InputError(
                f"an encoding of space `{self.name}` has shapes ({alphas},) and ({betas},), "
                f"got {alpha.shape} and {beta.shape}"
            )
        vector = np.concatenate([alpha, beta])[decisions.encoded_at]
        return self.architectures(decisions.row_of(vector)[None])[0]
