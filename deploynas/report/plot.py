"""Scatter plots as inline SVG: drawn here, so that a page shows them without scripts and prints them as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 46


@dataclass(frozen=True)
class Mark:
    """A point: where it is, how it looks (a CSS class), and the lines that hovering shows."""

    x: float
    y: float
    kind: str  # predicted, measured, shipped, ...
    lines: tuple[str, ...]
    key: str | None = None  # by which a script knows it
    name: str = ""  # written beside it


@dataclass(frozen=True)
class Axis:
    label: str
    low: float
    high: float
    factor: float = 1.0  # from the values to what the axis shows, such as 100 for percent

    @classmethod
    def around(cls, label: str, values: Sequence[float], factor: float = 1.0, zero: bool = False) -> Axis:
        """Round limits with some room around the values."""
        low, high = (0.0 if zero else min(values)), max(values)
        room = 0.06 * ((high - low) or abs(high) or 1.0)
        return cls(label, low if zero else low - room, high + room, factor)

    def ticks(self) -> list[float]:
        low, high = self.low * self.factor, self.high * self.factor
        raw = (high - low) / 6
        step = 10 ** math.floor(math.log10(raw))
        step *= next(m for m in (1, 2, 5, 10) if m * step >= raw)
        return [i * step / self.factor for i in range(math.ceil(low / step), math.floor(high / step) + 1)]

    def text(self, value: float) -> str:
        return f"{value * self.factor:.6g}"

    def place(self, value: float, start: float, end: float) -> float:
        return start + (value - self.low) / (self.high - self.low) * (end - start)


@dataclass(frozen=True)
class Plot:
    name: str
    description: str  # for those who cannot see it
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    line: Sequence[tuple[float, float]] = ()
    vertical: tuple[float, str] | None = None  # a budget
    diagonal: bool = False  # where predicted equals measured
    band: float | None = None  # a relative error around the diagonal
    chosen: tuple[float, float] | None = None  # ringed, for a script to move
    width: int = WIDTH
    height: int = HEIGHT

    def svg(self) -> str:
        body = [*self._grid(), *self._lines(), *(self._mark(mark) for mark in self.marks), *self._ring()]
        return (
            f'<svg class="plot" id="{self.name}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.description)}">' + "".join(body) + "</svg>"
        )

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is drawn."""
        return self._x(x), self._y(y)

    def _x(self, value: float) -> float:
        return round(self.x.place(value, LEFT, self.width - RIGHT), 1)

    def _y(self, value: float) -> float:
        return round(self.y.place(value, self.height - BOTTOM, TOP), 1)

    def _ring(self) -> list[str]:
        if self.chosen is None:
            return []
        x, y = self.place(*self.chosen)
        upright = f'x1="{x}" y1="{TOP}" x2="{x}" y2="{self.height - BOTTOM}"'
        return [f'<line class="cursor" {upright}/>', f'<circle class="ring" cx="{x}" cy="{y}" r="9"/>']

    def _grid(self) -> list[str]:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        parts = []
        for tick in self.x.ticks():
            x = self._x(tick)
            parts.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>')
            parts.append(
                f'<text class="tick" x="{x}" y="{bottom + 18}" text-anchor="middle">{self.x.text(tick)}</text>'
            )
        for tick in self.y.ticks():
            y = self._y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{self.y.text(tick)}</text>')
        # the label of the upright axis lies on top of it: turned letters are hard to read, on a phone most of all
        for x, y, anchor, text in (
            ((LEFT + right) / 2, self.height - 6, "middle", self.x.label),
            (4, TOP - 16, "start", self.y.label),
        ):
            parts.append(f'<text class="label" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')
        return parts

    def _lines(self) -> list[str]:
        parts = []
        if self.diagonal:
            low, high = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
            if self.band:
                corners = [(low, 1 + self.band), (high, 1 + self.band), (high, 1 - self.band), (low, 1 - self.band)]
                points = " ".join(f"{self._x(v)},{self._y(v * factor)}" for v, factor in corners)
                box = f'x="{LEFT}" y="{TOP}" width="{self.width - LEFT - RIGHT}" height="{self.height - TOP - BOTTOM}"'
                parts.append(f'<clipPath id="{self.name}-inside"><rect {box}/></clipPath>')
                parts.append(f'<polygon class="band" clip-path="url(#{self.name}-inside)" points="{points}"/>')
            parts.append(
                f'<line class="diagonal" x1="{self._x(low)}" y1="{self._y(low)}" '
                f'x2="{self._x(high)}" y2="{self._y(high)}"/>'
            )
        if self.line:
            points = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in self.line)
            parts.append(f'<polyline class="curve" points="{points}"/>')
        if self.vertical:
            value, text = self.vertical
            x = self._x(value)
            anchor, shift = ("end", -6) if x > self.width * 0.7 else ("start", 6)
            parts.append(f'<line class="budget" x1="{x}" y1="{TOP}" x2="{x}" y2="{self.height - BOTTOM}"/>')
            parts.append(
                f'<text class="budget-text" x="{x + shift}" y="{self.height - BOTTOM - 10}" '
                f'text-anchor="{anchor}">{escape(text)}</text>'
            )
        return parts

    def _mark(self, mark: Mark) -> str:
        x, y = self._x(mark.x), self._y(mark.y)
        shape = {
            "predicted": f'<circle cx="{x}" cy="{y}" r="4"/>',
            "measured": f'<rect x="{x - 5}" y="{y - 5}" width="10" height="10" transform="rotate(45 {x} {y})"/>',
        }.get(mark.kind, f'<path d="{_star(x, y, 10)}"/>')
        tip = escape("\n".join(mark.lines), quote=True).replace("\n", "&#10;")
        key = f' data-network="{escape(mark.key, quote=True)}"' if mark.key is not None else ""
        return (
            f'<g class="point {mark.kind}" tabindex="0"{key} data-tip="{tip}" aria-label="{tip}">'
            f'{self._name(mark, x, y)}<circle class="target" cx="{x}" cy="{y}" r="11"/>{shape}</g>'
        )

    def _name(self, mark: Mark, x: float, y: float) -> str:
        if not mark.name:
            return ""
        anchor, shift = ("end", -13) if x > self.width * 0.7 else ("start", 13)
        return f'<text class="mark-text" x="{x + shift}" y="{y + 4}" text-anchor="{anchor}">{escape(mark.name)}</text>'


def _star(x: float, y: float, radius: float) -> str:
    corners = []
    for i in range(10):
        r = radius if i % 2 == 0 else radius * 0.45
        angle = math.pi * (i / 5 - 0.5)
        corners.append(f"{x + r * math.cos(angle):.1f},{y + r * math.sin(angle):.1f}")
    return "M" + "L".join(corners) + "Z"
