"""Once-for-all's own way to write a network, as JSON: `{"ks": [7, 3, ...], "e": [6, 4, ...], "d": [2, 3, ...]}`.

`d` is the depth of every stage. `ks` (kernels) and `e` (expansion ratios) have an entry for every block that a stage
may have; those beyond the depth do not count, and are usually 0. `r`, the side of the image, chooses among the sizes of
a space that leaves its size open; elsewhere it may be left out, and must else be the space's. `wid` may be there, if it
is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from deploynas.errors import InputError
from deploynas.parsing import literal_of

if TYPE_CHECKING:
    from deploynas.space import Architecture, StageSpace

LISTS, OPTIONAL = ("ks", "e", "d"), ("r", "wid")


def from_json(text: str, space: StageSpace) -> Architecture:
    """Parse a network of the space; a Python dictionary as `str()` prints it is read too."""
    given = _mapping(text)
    _require_keys(given)
    size = _size_choice(given.get("r"), space)
    kernels, ratios, depths = (_numbers(name, given[name]) for name in LISTS)
    _require_length("d", depths, len(space.stages), space)
    blocks = sum(stage.max_depth for stage in space.stages)
    _require_length("ks", kernels, blocks, space)
    _require_length("e", ratios, blocks, space)
    choices, first = [], 0
    for s, (stage, written) in enumerate(zip(space.stages, depths, strict=True)):
        # a stage that has no choice, such as the last of ProxylessNAS, is given a depth all the same
        depth = stage.max_depth if len(stage.depths) == 1 else written
        if depth not in stage.depths:
            allowed = ", ".join(map(str, stage.depths))
            raise InputError(f"stage {s + 1}: depth {depth:g}, but space `{space.name}` has {allowed} there")
        known = _configurations(space, s)
        blocks_of_stage = zip(ratios[first:], kernels[first:], range(int(depth)), strict=False)
        choices.append([_choice(known, r, k, f"stage {s + 1}, block {b + 1}") for r, k, b in blocks_of_stage])
        first += stage.max_depth
    return space.architecture([*choices, *size])


def to_json(architecture: Architecture) -> str:
    """The inverse of `from_json`: what `set_active_subnet` of Once-for-all's own code takes."""
    space = cast("StageSpace", architecture.space)
    kernels, ratios = list[float](), list[float]()
    for s, stage in enumerate(space.stages):
        named = {c: pair for pair, c in _configurations(space, s).items()}
        pairs = [named[c] for c in architecture.choices[s]]
        pairs += [(0.0, 0.0)] * (stage.max_depth - len(pairs))
        ratios += [ratio for ratio, _ in pairs]
        kernels += [kernel for _, kernel in pairs]
    whole = [[int(v) if v == int(v) else v for v in values] for values in (kernels, ratios)]
    depths = [len(stage) for stage in architecture.choices[: len(space.stages)]]
    written: dict[str, object] = {"ks": whole[0], "e": whole[1], "d": depths}
    open_sizes = _open_sizes(space)
    if open_sizes:
        written["r"] = [open_sizes[architecture.choices[-1][0]]]
    return json.dumps(written)


def _mapping(text: str) -> dict[object, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = literal_of(text)
        except ValueError as error:
            raise InputError(f"not Once-for-all's JSON: {text[:60]!r}", hint=_EXAMPLE) from error
    if not isinstance(value, dict):
        raise InputError(f"not Once-for-all's JSON: {text[:60]!r}", hint=_EXAMPLE)
    return value


_EXAMPLE = 'like {"ks": [7, 3, ...], "e": [6, 4, ...], "d": [2, 3, ...]}'


def _require_keys(given: dict[object, object]) -> None:
    missing = [f"`{name}`" for name in LISTS if name not in given]
    unknown = [f"`{name}`" for name in given if name not in (*LISTS, *OPTIONAL)]
    if missing or unknown:
        wrong = f"no {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        raise InputError(f"Once-for-all's JSON: {wrong}", hint=_EXAMPLE)
    if given.get("wid") is not None:
        raise InputError(
            f"Once-for-all's JSON: `wid` {given['wid']!r} is not understood, since a space has one width",
            hint="leave `wid` out, and name the space of that width",
        )


def _size_choice(given: object, space: StageSpace) -> list[list[int]]:
    """What stands behind the choices of the stages where the input size is open; nothing where there is one.

    `r` is a number, or a list with one number, or with the same one for every stage.
    """
    sizes = set() if given is None else set(_numbers("r", given if isinstance(given, list) else [given]))
    open_sizes = _open_sizes(space)
    known = open_sizes or [space.height] * (space.height == space.width)
    if (open_sizes and len(sizes) != 1) or not sizes <= set(known):
        named = ", ".join(f"{size:g}" for size in sorted(sizes)) or "is missing"
        listed = ", ".join(map(str, known)) or f"{space.height} x {space.width}"
        raise InputError(f"image size `r` {named}, but space `{space.name}` has {listed}")
    return [[open_sizes.index(int(size))] for size in sizes] if open_sizes else []


def _open_sizes(space: StageSpace) -> list[int]:
    """The sizes to choose from, in the order of their options: a group of decisions behind those of the stages."""
    behind = space.decisions.groups[len(space.stages) :]
    return [int(dict(option.factors)["size"]) for group in behind for option in group.choices[0].options]


def _numbers(name: str, value: object) -> list[float]:
    def is_number(entry: object) -> bool:
        return isinstance(entry, (int, float)) and not isinstance(entry, bool)

    if not isinstance(value, list) or not all(map(is_number, value)):
        raise InputError(f"Once-for-all's JSON: `{name}` must be a list of numbers, got {str(value)[:60]}")
    return [float(entry) for entry in value]


def _require_length(name: str, values: Sequence[float], wanted: int, space: StageSpace) -> None:
    if len(values) != wanted:
        raise InputError(f"Once-for-all's JSON: `{name}` has {len(values)} entries, space `{space.name}` has {wanted}")


def _configurations(space: StageSpace, s: int) -> dict[tuple[float, float], int]:
    """By (ratio, kernel), which is all that Once-for-all's JSON says about a block."""
    known: dict[tuple[float, float], int] = {}
    for c, config in enumerate(space.stages[s].configs):
        factors = config.factors()
        if not {"expansion", "kernel"} <= set(factors):
            raise InputError(
                f"Once-for-all's JSON cannot say `{config}` of space `{space.name}`, stage {s + 1}",
                hint="write networks in timm's notation, or as choices",
            )
        pair = factors["expansion"], factors["kernel"]
        if pair in known:
            raise InputError(
                f"Once-for-all's JSON cannot tell `{space.stages[s].configs[known[pair]]}` from `{config}` in stage "
                f"{s + 1} of space `{space.name}`: it says kernels and ratios alone",
                hint="write networks in timm's notation, or as choices",
            )
        known[pair] = c
    return known


def _choice(known: dict[tuple[float, float], int], ratio: float, kernel: float, where: str) -> int:
    if (ratio, kernel) not in known:
        allowed = ", ".join(f"e{r:g}_k{k:g}" for r, k in known)
        raise InputError(f"{where}: no configuration e{ratio:g}_k{kernel:g} there", hint=f"allowed: {allowed}")
    return known[ratio, kernel]
