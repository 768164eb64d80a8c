"""Pictures of losses: what is near the lowest can be told apart, whatever the corners are."""

from __future__ import annotations

import pytest

from deploynas.report.landscape import _colour, _depth


@pytest.mark.parametrize(("value", "depth"), [(0.5, 0.0), (1.0, 0.5), (2.0, 1.0), (7e5, 1.0)])
def test_colours_follow_the_logarithm_and_end_at_the_median(value: float, depth: float) -> None:
    assert _depth(value, 0.5, 2.0) == pytest.approx(depth)


def test_a_flat_landscape_is_all_light() -> None:
    assert _depth(0.5, 0.5, 0.5) == 0.0 and _colour(0.0) == "#eff6ff" and _colour(1.0) == "#1e3a8a"
