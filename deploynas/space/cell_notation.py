"""NAS-Bench-201's notation of a cell, both ways: `|nor_conv_3x3~0|+|none~0|skip_connect~1|`.

A node after the other, the input left out, separated by `+`; of each node the edges into it, `operation~source`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.space.cells import Edge

_EDGE = re.compile(r"([a-z0-9_]+)~(\d+)$")
_EXAMPLE = "like `|nor_conv_3x3~0|+|none~0|skip_connect~1|`"


def to_text(edges: tuple[Edge, ...], chosen: tuple[int, ...]) -> str:
    nodes: dict[int, list[str]] = {}
    for edge, o in zip(edges, chosen, strict=True):
        nodes.setdefault(edge.target, []).append(f"{edge.operations[o]}~{edge.source}")
    return "+".join(f"|{'|'.join(into)}|" for into in nodes.values())


def from_text(text: str, edges: tuple[Edge, ...], space_name: str) -> list[int]:
    """The operation of every edge, as indices."""
    named = _named(text)
    targets = sorted({edge.target for edge in edges})
    if len(named) != len(targets):
        raise InputError(
            f"a cell of space `{space_name}` has {len(targets)} nodes behind its input, the notation has {len(named)}",
            hint=_EXAMPLE,
        )
    into = dict(zip(targets, named, strict=True))
    for target, found in into.items():
        wanted = {edge.source for edge in edges if edge.target == target}
        if set(found) != wanted:
            raise InputError(
                f"node {target}: space `{space_name}` has edges from {_listed(wanted)} into it, "
                f"the notation from {_listed(set(found))}"
            )
    return [_index(edge, into[edge.target][edge.source], space_name) for edge in edges]


def _named(text: str) -> list[dict[int, str]]:
    """Of every node, the operations of the edges into it by their sources."""
    if not text.strip():
        raise InputError("the architecture is empty", hint=_EXAMPLE)
    nodes = []
    for written in text.split("+"):
        found: dict[int, str] = {}
        for item in written.strip().strip("|").split("|"):
            match = _EDGE.match(item.strip())
            if not match:
                raise InputError(f"`{item.strip()}` is no edge of a cell", hint=_EXAMPLE)
            source = int(match[2])
            if source in found:
                raise InputError(f"`{written.strip()}` has two edges from node {source}", hint=_EXAMPLE)
            found[source] = match[1]
        nodes.append(found)
    return nodes


def _index(edge: Edge, name: str, space_name: str) -> int:
    if name not in edge.operations:
        raise InputError(
            f"{edge.name}: no operation `{name}` in space `{space_name}`", hint=f"one of {', '.join(edge.operations)}"
        )
    return edge.operations.index(name)


def _listed(sources: set[int]) -> str:
    return ", ".join(map(str, sorted(sources)))
