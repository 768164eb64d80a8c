"""The widths of one network as a space: every block a stage of its own, whose configurations are its expansion widths.

So a width is a decision like any other: the same tables are measured, the same solvers decide, and a pruned network is
an architecture that every command reads. Kernel and squeeze-and-excitation stay as they are in the network; widths are
multiples of 8, the network's own among them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deploynas.blocks import BlockConfig, Place
from deploynas.blocks.expansion import Expansion, ExpansionConfig
from deploynas.blocks.geometry import as_written
from deploynas.errors import InputError
from deploynas.space.architecture import Architecture
from deploynas.space.structure import Stage, StageSpace, of_stages

DIVISOR = 8  # channels come in multiples of it, as timm's do
WIDTHS = 12  # of a block, at most, unless more are asked for


def width_space(architecture: Architecture, widths: int = WIDTHS) -> StageSpace:
    """The space of all networks that are this one with narrower blocks; its heaviest is this one itself."""
    space = of_stages(architecture.space)
    if space.sizes:
        raise InputError(
            f"space `{space.name}` leaves the input size open: widths are chosen at one input size",
            hint="a space file with one input size",
        )
    stages = []
    for s, b, c in architecture.blocks():
        place, config = space.place(s, b), space.config(s, c)
        configs = width_configs(config, place, widths)
        stages.append(Stage(place.out_channels, place.stride, place.activation, (1,), configs))
    return replace(space, name=f"{space.name}-widths", stages=tuple(stages))


def width_configs(config: BlockConfig, place: Place, widths: int) -> tuple[BlockConfig, ...]:
    """A configuration at every width, narrowest first; one that does not widen stays alone."""
    part = config.part(place)
    if not isinstance(config, ExpansionConfig) or not isinstance(part, Expansion):
        return (config,)
    narrower = list(range(DIVISOR, part.mid_channels, DIVISOR))
    if len(narrower) >= widths:
        picked = np.linspace(0, len(narrower) - 1, max(1, widths - 1)).round().astype(int)
        narrower = [narrower[i] for i in dict.fromkeys(picked.tolist())]
    return (*(_at_width(config, place, width, part.se_channels) for width in narrower), config)


def _at_width(config: ExpansionConfig, place: Place, width: int, se_channels: int) -> ExpansionConfig:
    """The ratios that round to these channels."""
    ratio, se = as_written(width / place.in_channels), as_written(se_channels / width)
    narrowed = replace(config, ratio=ratio, se=se)
    part = narrowed.geometry(place)
    if (part["mid_channels"], part["se_channels"]) != (width, se_channels):
        raise InputError(
            f"a block `{config.notation(place)}` cannot be made {width} channels wide: {se_channels} channels of "
            f"squeeze-and-excitation are no multiple of {DIVISOR}"
        )
    return narrowed


def widths_of(space: StageSpace) -> tuple[tuple[int, ...], ...]:
    """Expansion channels of every block's configurations; of a block that does not widen, one 0."""
    return tuple(
        tuple(getattr(part, "mid_channels", 0) for part in (space.block(s, 0, c) for c in range(len(stage.configs))))
        for s, stage in enumerate(space.stages)
    )


def chosen_widths(architecture: Architecture) -> tuple[int, ...]:
    """Expansion channels of every block of a network of such a space."""
    offered = widths_of(of_stages(architecture.space))
    return tuple(offered[s][c] for s, _, c in architecture.blocks())
