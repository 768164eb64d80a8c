"""Small charts as SVG text: bars with error bars, and lines over a logarithmic axis. No library, no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 40
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#6b7280", "#be185d")


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    error: float | None = None  # drawn as plus and minus this much


@dataclass(frozen=True)
class Line:
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def bar_chart(title: str, unit: str, series: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Groups of bars: all series share the labels of the first; each has a name for the legend."""
    labels = [bar.label for bar in series[0][1]]
    ends = [bar.value + sign * (bar.error or 0) for _, bars in series for bar in bars for sign in (-1, 1)]
    scale = _Scale(min(0.0, *ends), max(0.0, *ends), HEIGHT - BOTTOM, TOP)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    thick = 0.7 * slot / len(series)
    parts = _frame(title, unit, scale)
    for i, label in enumerate(labels):
        parts.append(_text(LEFT + (i + 0.5) * slot, HEIGHT - BOTTOM + 16, label, "middle"))
        for j, (_, bars) in enumerate(series):
            x = LEFT + (i + 0.5) * slot + (j - len(series) / 2) * thick
            parts += _bar(bars[i], x, thick, scale, COLOURS[j % len(COLOURS)])
    parts.append(_rule(LEFT, scale(0), WIDTH - RIGHT, scale(0), "#374151"))
    if len(series) > 1:
        parts += _legend([name for name, _ in series])
    return _svg(parts, title)


def line_chart(
    title: str, unit: str, x_unit: str, lines: Sequence[Line], level: tuple[str, float] | None = None
) -> str:
    """Lines over a logarithmic axis; `level` is a named horizontal rule."""
    ys = [y for line in lines for y in line.y] + ([level[1]] if level else [])
    xs = [x for line in lines for x in line.x]
    scale = _Scale(min(0.0, *ys), max(ys), HEIGHT - BOTTOM, TOP)
    low, high = math.log10(min(xs)), math.log10(max(xs))

    def place(x: float) -> float:
        return LEFT + (math.log10(x) - low) / max(high - low, 1e-9) * (WIDTH - LEFT - RIGHT)

    parts = _frame(title, unit, scale)
    for x in _decades(min(xs), max(xs)):
        parts.append(_text(place(x), HEIGHT - BOTTOM + 16, f"{x:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_unit, "middle"))
    if level:
        parts.append(_rule(LEFT, scale(level[1]), WIDTH - RIGHT, scale(level[1]), "#6b7280", dashed=True))
        parts.append(_text(WIDTH - RIGHT, scale(level[1]) - 4, level[0], "end"))
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{place(x):.1f},{scale(y):.1f}" for x, y in zip(line.x, line.y, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts += [
            f'<circle cx="{place(x):.1f}" cy="{scale(y):.1f}" r="2.6" fill="{colour}"/>'
            for x, y in zip(line.x, line.y, strict=True)
        ]
    return _svg([*parts, *_legend([line.name for line in lines])], title, extra=14 * math.ceil(len(lines) / 3))


class _Scale:
    """Values to vertical places, with round ticks."""

    def __init__(self, low: float, high: float, bottom: float, top: float) -> None:
        high = high if high > low else low + 1
        raw = (high - low) / 4
        power = 10 ** math.floor(math.log10(raw))
        self.step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
        self.low, self.high = math.floor(low / self.step) * self.step, math.ceil(high / self.step) * self.step
        self.bottom, self.top = bottom, top

    def __call__(self, value: float) -> float:
        return self.bottom - (value - self.low) / (self.high - self.low) * (self.bottom - self.top)

    def ticks(self) -> list[float]:
        return [self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1)]


def _frame(title: str, unit: str, scale: _Scale) -> list[str]:
    parts = [_text(LEFT, 16, f"{title} ({unit})", "start", bold=True)]
    for tick in scale.ticks():
        parts.append(_rule(LEFT, scale(tick), WIDTH - RIGHT, scale(tick), "#e5e7eb"))
        parts.append(_text(LEFT - 6, scale(tick) + 4, f"{0.0 if abs(tick) < 1e-12 else tick:g}", "end"))
    return parts


def _bar(bar: Bar, x: float, thick: float, scale: _Scale, colour: str) -> list[str]:
    top, bottom = sorted((scale(bar.value), scale(0)))
    size = f'x="{x:.1f}" y="{top:.1f}" width="{thick:.1f}" height="{max(0.5, bottom - top):.1f}"'
    name = f"<title>{escape(bar.label)}: {bar.value:.4g}" + (f" ± {bar.error:.2g}" if bar.error else "") + "</title>"
    parts = [f'<rect {size} fill="{colour}" fill-opacity="0.85">{name}</rect>']
    if bar.error:
        middle, high, low = x + thick / 2, scale(bar.value + bar.error), scale(bar.value - bar.error)
        parts.append(_rule(middle, high, middle, low, "#111827"))
        parts += [_rule(middle - 3, y, middle + 3, y, "#111827") for y in (high, low)]
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for i, name in enumerate(names):
        x, y = LEFT + (i % 3) * 135, HEIGHT + 4 + 14 * (i // 3)
        parts.append(f'<rect x="{x}" y="{y - 8}" width="9" height="9" fill="{COLOURS[i % len(COLOURS)]}"/>')
        parts.append(_text(x + 13, y, name, "start"))
    return parts


def _decades(low: float, high: float) -> list[float]:
    every = [
        m * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)
    ]
    return [x for x in every if low <= x <= high]


def _text(x: float, y: float, text: str, anchor: str, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11"{weight}>{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dash}/>'


def _svg(parts: Sequence[str], title: str, extra: int = 14) -> str:
    box = f'viewBox="0 0 {WIDTH} {HEIGHT + extra}" width="{WIDTH}" height="{HEIGHT + extra}"'
    style = 'font-family="system-ui, sans-serif" fill="#111827"'
    label = f'role="img" aria-label="{escape(title, quote=True)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style} {label}>{"".join(parts)}</svg>'
