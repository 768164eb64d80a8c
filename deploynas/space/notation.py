"""timm's one-line block notation, both ways: `ir_r1_k5_s2_e3_c24_nre_se0.25`.

`ir` inverted residual, `ds` depthwise separable, `cn` convolution; `r` repeats, `k` kernel, `s` stride, `e`
expansion ratio, `c` output channels, `n` activation, `se` squeeze-and-excitation ratio. A whole network is
written as blocks separated by spaces and stages separated by ` | `, the fixed parts included, so that
`[s.split() for s in text.split("|")]` is what timm's `decode_arch_def` takes.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.space import Architecture, Space

_ACTIVATIONS = {"relu": "re", "relu6": "r6", "hard_swish": "hs", "swish": "sw"}
_OPTION = re.compile(r"(se|[rksec])(\d+(?:\.\d+)?)$|n(re|r6|hs|sw)$")


def to_arch_def(architecture: Architecture) -> list[list[str]]:
    """The nested lists that timm's `decode_arch_def` reads."""
    space = architecture.space
    stages = []
    if space.first:
        first = space.first
        code = _ACTIVATIONS[first.activation]
        stages.append([f"ds_r1_k{first.kernel}_s{first.stride}_e1_c{first.out_channels}_n{code}"])
    for s, choice in enumerate(architecture.choices):
        stages.append([_block_text(architecture, s, b) for b in range(len(choice))])
    stages.append([f"cn_r1_k1_s1_c{space.head_features}_n{_ACTIVATIONS[space.head_activation]}"])
    return stages


def to_text(architecture: Architecture) -> str:
    return " | ".join(" ".join(stage) for stage in to_arch_def(architecture))


def from_text(text: str, space: Space) -> Architecture:
    """Parse a network of the space; the fixed parts may be left out, and are checked when they are there."""
    stages = _searched_stages(_nested(text), space)
    if len(stages) != len(space.stages):
        raise InputError(
            f"space `{space.name}` has {len(space.stages)} searched stages, the notation has {len(stages)}",
            hint="separate stages with ` | `",
        )
    choices = []
    for s, blocks in enumerate(stages):
        expanded = [option for block in blocks for option in _repeat(_options(block, "ir"))]
        choices.append([_config_index(space, s, b, options) for b, options in enumerate(expanded)])
    return space.architecture(choices)


def _block_text(architecture: Architecture, s: int, b: int) -> str:
    stage, config = architecture.space.stages[s], architecture.config(s, b)
    text = f"ir_r1_k{config.kernel}_s{stage.stride if b == 0 else 1}_e{config.ratio:g}_c{stage.out_channels}"
    text += f"_n{_ACTIVATIONS[stage.activation]}"
    return text + (f"_se{config.se:g}" if config.se else "")


def _nested(text: str) -> list[list[str]]:
    """Stages of block strings, from nested lists or from our separators."""
    text = text.strip()
    if text.startswith("["):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            raise InputError(f"not a list of lists of block strings: {text[:60]!r}") from error
        if not all(isinstance(s, list) and all(isinstance(b, str) for b in s) for s in value):
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
        width = _options(block).get("c")
        if width != previous:
            grouped.append([])
        grouped[-1].append(block)
        previous = width
    return grouped


def _searched_stages(stages: list[list[str]], space: Space) -> list[list[str]]:
    """Without the fixed parts, after checking that they are this space's."""
    stages = [stage for stage in stages if stage]
    if stages and stages[0][0].startswith("ds"):
        first, options = space.first, _options(stages[0][0])
        expected = first and {"k": first.kernel, "s": first.stride, "c": first.out_channels}
        if len(stages[0]) != 1 or not expected or any(options.get(k) != v for k, v in expected.items()):
            raise InputError(f"the first block `{stages[0][0]}` is not that of space `{space.name}`")
        stages = stages[1:]
    if stages and stages[-1][0].startswith("cn"):
        if _options(stages[-1][0]).get("c") != space.head_features:
            raise InputError(f"the last convolution `{stages[-1][0]}` is not that of space `{space.name}`")
        stages = stages[:-1]
    return stages


def _options(block: str, expected_kind: str | None = None) -> dict[str, float | str]:
    kind, *items = block.split("_")
    if kind not in ("ir", "ds", "cn") or (expected_kind and kind != expected_kind):
        raise InputError(f"block `{block}`: expected one that starts with `{expected_kind or 'ir'}_`")
    options: dict[str, float | str] = {}
    for item in items:
        match = _OPTION.match(item)
        if not match:
            raise InputError(f"block `{block}`: `{item}` is not understood", hint="like ir_r1_k5_s2_e3_c24_nre_se0.25")
        key, number, activation = match.groups()
        options[key or "n"] = float(number) if key else activation
    return options


def _repeat(options: dict[str, float | str]) -> list[dict[str, float | str]]:
    """`r2` stands for two blocks, of which only the first has the stride."""
    count = int(options.get("r", 1))
    return [options if i == 0 else {**options, "s": 1.0} for i in range(count)]


def _config_index(space: Space, s: int, b: int, options: dict[str, float | str]) -> int:
    stage = space.stages[s]
    where = f"stage {s + 1}, block {b + 1}"
    expected = {
        "s": stage.stride if b == 0 else 1,
        "c": stage.out_channels,
        "n": _ACTIVATIONS[stage.activation],
    }
    for key, value in expected.items():
        if options.get(key, value) != value:
            found = options[key]
            raise InputError(
                f"{where}: `{key}{found if isinstance(found, str) else f'{found:g}'}`, "
                f"but space `{space.name}` has `{key}{value}` there"
            )
    wanted = (options.get("e", 1.0), options.get("k"), options.get("se", 0.0))
    for c, config in enumerate(stage.configs):
        if (config.ratio, config.kernel, config.se) == wanted:
            return c
    allowed = " ".join(str(config) for config in stage.configs)
    raise InputError(
        f"{where}: no configuration with ratio {wanted[0]}, kernel {wanted[1]}, SE {wanted[2]} in space `{space.name}`",
        hint=f"allowed: {allowed}",
    )
