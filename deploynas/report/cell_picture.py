"""A cell as a picture: its nodes in a row, an arc for every edge that does something, and what it does."""

from __future__ import annotations

import re
from html import escape

from deploynas.report.drawing import colour

STEP, MARGIN, RISE = 170, 40, 44  # between nodes, around the row, of an arc for each node that it passes
_EDGE = re.compile(r"([a-z0-9_]+)~(\d+)")


def cell_picture(architecture: str) -> str:
    """An SVG; nothing for a network that is not written as a cell."""
    if not architecture.startswith("|"):
        return ""
    edges = [
        (int(source), target, operation)
        for target, into in enumerate(architecture.split("+"), start=1)
        for operation, source in _EDGE.findall(into)
        if operation != "none"
    ]
    nodes = architecture.count("+") + 2
    half = MARGIN + RISE * max(nodes - 2, 1)
    drawn = "".join(_edge(*edge, half) for edge in edges) + "".join(_node(n, nodes, half) for n in range(nodes))
    width, height = 2 * MARGIN + STEP * (nodes - 1), 2 * half
    label = escape(f"The cell: {architecture}", quote=True)
    return (
        f'<svg class="cell" viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        f'style="max-width:{width}px;width:100%;font-size:12px">{drawn}</svg>'
    )


def _node(n: int, nodes: int, y: int) -> str:
    name = {0: "in", nodes - 1: "out"}.get(n, str(n))
    x = MARGIN + STEP * n
    circle = f'<circle cx="{x}" cy="{y}" r="17" fill="var(--faint)"/>'
    return f'{circle}<text x="{x}" y="{y + 4}" text-anchor="middle" fill="currentColor">{name}</text>'


def _edge(source: int, target: int, operation: str, y: int) -> str:
    """Neighbours by a line; others by an arc, above the row from even nodes and below it from odd ones."""
    start, end = MARGIN + STEP * source, MARGIN + STEP * target
    bend = RISE * (target - source - 1) * (1 if source % 2 else -1)
    stroke = colour(f"edge{source}-{target}")
    path = f'<path d="M{start},{y} Q{(start + end) / 2:g},{y + 2 * bend} {end},{y}" fill="none" stroke="{stroke}"'
    middle, label_y = (start + end) / 2, y + bend + (16 if bend > 0 else -7)
    text = f'<text x="{middle:g}" y="{label_y:g}" text-anchor="middle" fill="currentColor">{escape(operation)}</text>'
    return f'{path} stroke-width="2"/>{text}'
