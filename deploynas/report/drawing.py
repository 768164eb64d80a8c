"""Pieces of drawn networks as HTML: colours of stages, chips for what a block is, legends, lines for hovering."""

from __future__ import annotations

import re
from html import escape

from deploynas.report.document import MeasuredPoint, ReportFile
from deploynas.report.numbers import change, ms, percent

_LEGEND_SHAPES = {
    "predicted": '<circle cx="8" cy="8" r="4.5"/>',
    "measured": '<rect x="4" y="4" width="8" height="8" transform="rotate(45 8 8)"/>',
    "shipped": '<path d="M8,0L10.3,5.3L16,5.7L11.6,9.4L13,15L8,12L3,15L4.4,9.4L0,5.7L5.7,5.3Z"/>',
}


def legend(items: list[tuple[str, str]]) -> str:
    parts = [
        f'<span><svg viewBox="0 0 16 16" aria-hidden="true"><g class="point {kind}">{_LEGEND_SHAPES[kind]}</g></svg>'
        f"{escape(text)}</span>"
        for kind, text in items
    ]
    return f'<figcaption class="legend">{"".join(parts)}</figcaption>'


def colour(part: str) -> str:
    """Of a part, by its stage: `stage2/block1`, `stem`, `head`."""
    match = re.match(r"stage(\d+)/block|edge\d+-(\d+)", part)
    group = int(match[1] or match[2]) if match else 0  # the stage, or the node that the edge leads to
    number = (group - 1) % 5 + 1 if group else 6 if part == "head" else 0
    return f"var(--s{number})"


def chips(text: str, shape: str) -> str:
    """What a block is, word by word: `5×5`, `expand ×2`, `SE`, and its shape."""
    words = [*text.split(", "), *([shape] if shape else [])]
    return "".join(f'<span class="chip{" se" if word == "SE" else ""}">{escape(word)}</span>' for word in words)


def tip(lines: list[str]) -> str:
    """As the value of `data-tip`."""
    return escape("\n".join(lines), quote=True).replace("\n", "&#10;")


def facts(latency_ms: float, accuracy: float) -> tuple[str, str]:
    return (f"latency {ms(latency_ms)}", f"one-shot accuracy {percent(accuracy)}")


def both(predicted_ms: float, measured_ms: float) -> tuple[str, str]:
    return (
        f"predicted {ms(predicted_ms)}, measured {ms(measured_ms)}",
        f"off by {change(predicted_ms / measured_ms - 1)}",
    )


def measured_name(report: ReportFile, point: MeasuredPoint) -> str:
    """Earlier reports have the shipped network a second time, as it was timed beside others."""
    again = not point.shipped and point.architecture == report.architecture
    return "The shipped network, timed again beside others" if again else "Network of the frontier, measured"


def notation_of(architecture: str) -> str:
    """Whose notation a network is written in."""
    return "NAS-Bench-201's notation" if architecture.startswith("|") else "timm's notation"


def stages(architecture: str) -> tuple[str, ...]:
    """The searched stages of a network, a line each: `1: k3 e6 · k5 e3 SE`; of a cell, its nodes."""
    if architecture.startswith("|"):
        nodes = [into.strip("|").replace("|", " · ") for into in architecture.split("+")]
        return tuple(f"node {i + 1}: {into}" for i, into in enumerate(nodes))
    found = [stage.split() for stage in architecture.split(" | ")]
    searched = [blocks for blocks in found if blocks[0].startswith("ir_")]
    return tuple(
        f"stage {i + 1}: " + " · ".join(_short(block) for block in blocks) for i, blocks in enumerate(searched)
    )


def _short(block: str) -> str:
    options = dict(re.findall(r"_(se|[ke])(\d+(?:\.\d+)?)", block))
    return f"k{options.get('k', '?')} e{options.get('e', '?')}" + (" SE" if "se" in options else "")
