"""What an architecture costs on any machine: parameters, MACs, bytes of weights, peak activation memory.

Parameters count as timm does (batch norm unfolded); weight bytes are those of the exported fp32 file (batch norm
folded). All are for one image. Peak memory assumes that an operator's inputs and outputs, and a pending
shortcut, are alive while it runs, and that activations work in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from deploynas.blocks import Part
from deploynas.blocks.geometry import strided
from deploynas.blocks.operators import Tensor
from deploynas.errors import InputError
from deploynas.space import Architecture, Space

FLOAT_BYTES = 4
ADDITIVE = ("params", "macs", "size_bytes")
RESOURCES = (*ADDITIVE, "peak_memory_bytes")


@dataclass(frozen=True)
class Costs:
    """The costs of one architecture, or of one part of it."""

    params: int
    macs: int
    size_bytes: int
    peak_memory_bytes: int

    @classmethod
    def of(cls, space: Space, architecture: Architecture) -> Costs:
        return combine(*(part_costs(part) for _, part in space.parts(architecture)))


def combine(*costs: Costs) -> Costs:
    """Parts of one network: everything adds up but the peak, which is a maximum."""
    return Costs(
        params=sum(c.params for c in costs),
        macs=sum(c.macs for c in costs),
        size_bytes=sum(c.size_bytes for c in costs),
        peak_memory_bytes=max((c.peak_memory_bytes for c in costs), default=0),
    )


def resource_table(space: Space, resource: str) -> tuple[float, list[list[list[float]]]]:
    """(fixed parts, [group][choice][option]) of one resource, in the form of a latency table.

    Where a space builds several decisions into one part, the peak is that of its fullest part, whatever is decided.
    """
    if resource not in RESOURCES:
        raise InputError(f"no resource `{resource}`", hint=f"one of {', '.join(RESOURCES)}, or a latency table")

    def together(parts: Sequence[Part]) -> float:
        return float(getattr(combine(*map(part_costs, parts)), resource))

    fixed = [part for _, part in space.fixed_parts()]
    if resource not in ADDITIVE:
        fixed += space.joint_parts()
    blocks = [
        [
            [together(space.option_parts(g, i, o)) for o in range(len(choice.options))]
            for i, choice in enumerate(group.choices)
        ]
        for g, group in enumerate(space.built_groups)
    ]
    return together(fixed), blocks


@lru_cache(maxsize=4096)
def part_costs(part: Part) -> Costs:
    counter = _Counter()
    part.write(counter, "part", Tensor("input", part.in_channels, part.height, part.width))
    return counter.costs()


class _Counter:
    """Operators that are counted instead of written; it remembers them, to see which values are alive when."""

    def __init__(self) -> None:
        self._params = self._macs = self._folded = 0
        self._steps: list[_Step] = []

    def conv(
        self,
        name: str,
        x: Tensor,
        out_channels: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        depthwise: bool = False,
        activation: str | None = None,
        norm: bool = True,
        bias: bool = True,
    ) -> Tensor:
        y = Tensor(name, out_channels, strided(x.height, stride), strided(x.width, stride))
        weights = kernel**2 * out_channels * (1 if depthwise else x.channels)
        # folding turns a batch norm, scale and shift, into a bias
        biases = out_channels if bias else 0
        self._count(weights, 2 * biases if norm else biases, biases, y.height * y.width)
        return self._step((x,), y)

    def linear(self, name: str, x: Tensor, outputs: int, *, activation: str | None = None, bias: bool = True) -> Tensor:
        biases = outputs if bias else 0
        self._count(x.channels * outputs, biases, biases, 1)
        return self._step((x,), Tensor(name, outputs))

    def relu(self, name: str, x: Tensor) -> Tensor:
        return self._step((x,), Tensor(name, x.channels, x.height, x.width), in_place=True)

    def norm(self, name: str, x: Tensor, *, activation: str | None = None) -> Tensor:
        self._count(0, 2 * x.channels, 2 * x.channels, 0)  # a factor and a bias, like any batch norm without MACs
        return self._step((x,), Tensor(name, x.channels, x.height, x.width))

    def average_pool(self, name: str, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        return self._step((x,), Tensor(name, x.channels, strided(x.height, stride), strided(x.width, stride)))

    def global_pool(self, name: str, x: Tensor) -> Tensor:
        return self._step((x,), Tensor(name, x.channels))

    def flatten(self, name: str, x: Tensor) -> Tensor:
        return x

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        return self._step((x, y), Tensor(name, x.channels, x.height, x.width), in_place=True)

    def zeros(self, name: str, x: Tensor) -> Tensor:
        return self._step((x,), Tensor(name, x.channels, x.height, x.width), in_place=True)

    def scale(self, name: str, x: Tensor, gate: Tensor) -> Tensor:
        # the product is a new tensor; the gate, one number a channel, is nothing beside it
        return self._step((x,), Tensor(name, x.channels, x.height, x.width))

    def costs(self) -> Costs:
        return Costs(self._params, self._macs, self._folded * FLOAT_BYTES, self._peak() * FLOAT_BYTES)

    def _count(self, weights: int, others: int, folded: int, pixels: int) -> None:
        """Weights, each used once a pixel, and other parameters: as trained, and as they are once folded."""
        self._params += weights + others
        self._folded += weights + folded
        self._macs += weights * pixels

    def _step(self, reads: tuple[Tensor, ...], makes: Tensor, in_place: bool = False) -> Tensor:
        self._steps.append(_Step(reads, makes, in_place))
        return makes

    def _peak(self) -> int:
        """The most elements that are alive at once: an operator's own, and what a later one still reads."""
        last_read = {x.name: i for i, step in enumerate(self._steps) for x in step.reads}
        peak, waiting = 0, dict[str, int]()
        for i, step in enumerate(self._steps):
            waiting |= {x.name: x.elements for x in step.reads}
            over = [x for x in step.reads if last_read[x.name] == i and x.elements == step.makes.elements]
            own = 0 if step.in_place and over else step.makes.elements
            peak = max(peak, sum(waiting.values()) + own)
            waiting[step.makes.name] = step.makes.elements
            waiting = {name: size for name, size in waiting.items() if last_read.get(name, -1) > i}
        return peak


@dataclass(frozen=True)
class _Step:
    """One operator: what it reads and makes, and whether it may write over what nothing reads after it."""

    reads: tuple[Tensor, ...]
    makes: Tensor
    in_place: bool
