"""The loss around the weights of networks as pictures: one square each, all in the same colours.

Losses rise by orders of magnitude towards the corners. So colours follow their logarithm, and end at the median: beyond
it a network has lost everything, and how much is of no interest.
"""

from __future__ import annotations

import math
from html import escape
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploynas.accuracy.landscape_record import Landscape, NetworkLandscape

SIDE, TITLE, CAPTION = 220, 24, 40
LIGHT, DARK = (239, 246, 255), (30, 58, 138)


def landscape_section(landscape: Landscape) -> str:
    values = [value for one in landscape.networks for row in one.contour for value in row]
    low, high = min(values), median(values)
    pictures = "".join(f"<figure>{picture(one, low, high)}</figure>" for one in landscape.networks)
    findings = "".join(f"<li>{escape(finding)}</li>" for finding in landscape.findings)
    return (
        "<h2>Around the weights</h2>"
        f"<p>The loss along two random directions, {landscape.reach:g} times the length of every filter to each side; "
        f"from {low:.3g} (light) to {high:.3g} and more (dark), by its logarithm. "
        "Weights are inherited from the supernet.</p>"
        f"<div class='charts'>{pictures}</div><ul>{findings}</ul>"
    )


def picture(one: NetworkLandscape, low: float, high: float) -> str:
    """Cells from light, the lowest loss, to dark; the weights themselves are in the middle."""
    side = SIDE / len(one.contour)
    cells = "".join(
        f'<rect x="{j * side:.1f}" y="{TITLE + i * side:.1f}" width="{side + 0.5:.1f}" height="{side + 0.5:.1f}" '
        f'fill="{_colour(_depth(value, low, high))}"/>'
        for i, row in enumerate(one.contour)
        for j, value in enumerate(row)
    )
    bottom = TITLE + SIDE
    said = escape(f"{one.role}: the loss rises by {one.rise:.3g} half way to the edge", quote=True)
    return (
        f'<svg viewBox="0 0 {SIDE} {bottom + CAPTION}" width="{SIDE}" role="img" aria-label="{said}">'
        f'<text x="0" y="16" font-size="14">{escape(one.role)}</text>{cells}'
        f'<circle cx="{SIDE / 2}" cy="{TITLE + SIDE / 2}" r="3" fill="#dc2626"/>'
        f'<text x="0" y="{bottom + 16}" font-size="12">rises by {one.rise:.3g} half way</text>'
        f'<text x="0" y="{bottom + 32}" font-size="12">gradient variance {one.gradient_variance:.3g}</text></svg>'
    )


def _depth(value: float, low: float, high: float) -> float:
    """From 0 to 1; a loss of 0 has no logarithm."""
    low, high, value = (max(one, 1e-6) for one in (low, high, value))
    return min(1.0, math.log(value / low) / math.log(high / low)) if high > low else 0.0


def _colour(share: float) -> str:
    mixed = (round(a + share * (b - a)) for a, b in zip(LIGHT, DARK, strict=True))
    return "#" + "".join(f"{own:02x}" for own in mixed)
