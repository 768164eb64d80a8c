"""timm's one-line block notation, both ways: `ir_r1_k5_s2_e3_c24_nre_se0.25`.

`ir` is the inverted residual (each kind in `blocks/` has its own code), `ds` depthwise separable, `cn` convolution; `r`
repeats, `k` kernel, `s` stride, `e` expansion ratio, `c` output channels, `n` activation, `se` squeeze-and-excitation
ratio. A whole network is written as blocks separated by spaces and stages separated by ` | `, the fixed parts included,
so that `[s.split() for s in text.split("|")]` is what timm's `decode_arch_def` takes. Where the input size is decided
too, it stands behind an `@` at the very end, which timm's notation does not have: `... | cn_r1_k1_s1_c960_nhs @192`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from deploynas.blocks import KINDS, kind_of
from deploynas.blocks.geometry import timm_code
from deploynas.errors import InputError
from deploynas.parsing import literal_of

if TYPE_CHECKING:
    from deploynas.space import Architecture, StageSpace

LONGEST_NUMBER = 9  # characters
MOST_REPEATS = 100  # no stage is deeper
_OPTION = re.compile(r"(se|[rksec])(\d+(?:\.\d+)?)$|n([a-z][a-z0-9])$")
_FIXED = ("ds", "cn")


def to_arch_def(architecture: Architecture) -> list[list[str]]:
    """The nested lists that timm's `decode_arch_def` reads."""
    space = cast("StageSpace", architecture.space)
    stages = [[space.first.notation()]] if space.first else []
    for s, choice in enumerate(architecture.stages):
        stages.append([architecture.config(s, b).notation(space.place(s, b)) for b in range(len(choice))])
    return [*stages, [space.head.notation()]]


def to_text(architecture: Architecture) -> str:
    text = " | ".join(" ".join(stage) for stage in to_arch_def(architecture))
    space = cast("StageSpace", architecture.space)
    return f"{text} @{space.sizes[architecture.size_index]}" if space.sizes else text


def from_text(text: str, space: StageSpace) -> Architecture:
    """Parse a network of the space; the fixed parts may be left out, and are checked when they are there."""
    blocks_text, at, size = text.partition("@")
    stages = _searched_stages(_nested(blocks_text), space)
    if len(stages) != len(space.stages):
        raise InputError(
            f"space `{space.name}` has {len(space.stages)} searched stages, the notation has {len(stages)}",
            hint="separate stages with ` | `",
        )
    choices = []
    for s, blocks in enumerate(stages):
        written = [block for text in blocks for block in _repeated(text)]
        choices.append([_config_index(space, s, b, block) for b, block in enumerate(written)])
    return space.architecture([*choices, *_size_choice(space, size if at else None)])


def _size_choice(space: StageSpace, text: str | None) -> list[list[int]]:
    """The choice of the input size, as the last one of a network; none where there is nothing to choose."""
    if not space.sizes and text is None:
        return []
    known = space.sizes or (space.height,) * (space.height == space.width)
    listed = ", ".join(f"`@{size}`" for size in known)
    if text is None:
        raise InputError(f"space `{space.name}` leaves the input size open", hint=f"end with one of {listed}")
    if not text.strip().isdecimal() or int(text) not in known:
        hint = f"one of {listed}" if listed else "leave it out"
        raise InputError(f"`@{text.strip()}` is no input size of space `{space.name}`", hint=hint)
    return [[known.index(int(text))]] if space.sizes else []


def _nested(text: str) -> list[list[str]]:
    """Stages of block strings, from nested lists or from our separators."""
    text = text.strip()
    if text.startswith("["):
        try:
            value = literal_of(text)
        except ValueError as error:
            raise InputError(f"not a list of lists of block strings: {text[:60]!r}") from error
        if not isinstance(value, list) or not all(
            isinstance(s, list) and all(isinstance(b, str) for b in s) for s in value
        ):
            raise InputError("expected a list of stages, each a list of block strings")
        return value
    stages = [re.split(r"[\s,]+", stage.strip(" ,\t\n")) for stage in re.split(r"[|;\n]", text) if stage.strip()]
    if not stages:
        raise InputError("the architecture is empty")
    if len(stages) > 1:
        return stages
    # one run of blocks: a change of output channels starts a stage
    grouped: list[list[str]] = []
    previous = None
    for block in stages[0]:
        width = _read(block).numbers.get("c")
        if width != previous:
            grouped.append([])
        grouped[-1].append(block)
        previous = width
    return grouped


def _searched_stages(stages: list[list[str]], space: StageSpace) -> list[list[str]]:
    """Without the fixed parts, after checking that they are this space's."""
    stages = [stage for stage in stages if stage]
    if stages and stages[0][0].startswith("ds"):
        first, options = space.first, _read(stages[0][0]).numbers
        expected = first and {"k": first.kernel, "s": first.stride, "c": first.out_channels}
        if len(stages[0]) != 1 or not expected or any(options.get(k) != v for k, v in expected.items()):
            raise InputError(f"the first block `{stages[0][0]}` is not that of space `{space.name}`")
        stages = stages[1:]
    if stages and stages[-1][0].startswith("cn"):
        if _read(stages[-1][0]).numbers.get("c") != space.head_features:
            raise InputError(f"the last convolution `{stages[-1][0]}` is not that of space `{space.name}`")
        stages = stages[:-1]
    return stages


@dataclass(frozen=True)
class _Written:
    """One block as it is written: the kind, numbers by their letters, and the activation if it is named."""

    text: str
    kind: str
    numbers: dict[str, float]
    activation: str | None

    def without_stride(self) -> _Written:
        return replace(self, numbers={**self.numbers, "s": 1.0})


def _read(text: str) -> _Written:
    kind, *items = text.split("_")
    if kind not in _FIXED and kind not in KINDS:
        raise InputError(f"block `{text}`: expected one that starts with {' or '.join(f'`{k}_`' for k in KINDS)}")
    numbers: dict[str, float] = {}
    activation = None
    for item in items:
        match = _OPTION.match(item)
        if not match:
            raise InputError(f"block `{text}`: `{item}` is not understood", hint="like ir_r1_k5_s2_e3_c24_nre_se0.25")
        key, number, code = match.groups()
        if key and len(number) <= LONGEST_NUMBER:
            numbers[key] = float(number)
        elif key:
            raise InputError(f"block `{text}`: `{item}` is not understood")
        else:
            activation = code
    return _Written(text, kind, numbers, activation)


def _repeated(text: str) -> list[_Written]:
    """`r2` stands for two blocks, of which only the first has the stride."""
    block = _read(text)
    if block.kind in _FIXED:
        raise InputError(f"block `{text}`: expected one that starts with {' or '.join(f'`{k}_`' for k in KINDS)}")
    count = block.numbers.get("r", 1.0)
    if not 1 <= count <= MOST_REPEATS or count != int(count):
        raise InputError(f"block `{text}`: `r` is how many blocks it stands for, 1 to {MOST_REPEATS}")
    return [block, *[block.without_stride()] * (int(count) - 1)]


def _config_index(space: StageSpace, s: int, b: int, block: _Written) -> int:
    stage, place, where = space.stages[s], space.place(s, b), f"stage {s + 1}, block {b + 1}"
    for key, value in (("s", place.stride), ("c", place.out_channels)):
        if block.numbers.get(key, value) != value:
            raise InputError(
                f"{where}: `{key}{block.numbers[key]:g}`, but space `{space.name}` has `{key}{value}` there"
            )
    code = timm_code(place.activation)
    if block.activation not in (None, code):
        raise InputError(f"{where}: `n{block.activation}`, but space `{space.name}` has `n{code}` there")
    wanted = kind_of(block.kind).config.from_notation(block.numbers)
    if wanted in stage.configs:
        return stage.configs.index(wanted)
    allowed = ", ".join(config.notation(place) for config in stage.configs)
    raise InputError(
        f"{where}: no configuration `{block.text}` in space `{space.name}`",
        hint=f"allowed: {allowed}",
    )
