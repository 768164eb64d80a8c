"""Charts are well-formed SVG that shows what it was given."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from deploynas.report.charts import Bar, Line, bar_chart, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_point_up_and_down_from_zero_in_proportion():
    svg = ET.fromstring(bar_chart("a < b", "points", [("s", [Bar("up", 2.0, 0.5), Bar("down", -1.0), Bar("none", 0)])]))
    up, down, none = svg.findall(f"{SVG}rect")
    height = [float(r.get("height")) for r in (up, down, none)]
    assert height[0] == pytest.approx(2 * height[1], rel=0.02) and height[2] <= 0.5
    assert float(up.get("y")) + height[0] == pytest.approx(float(down.get("y")), abs=0.11)
    assert "a < b" in svg.find(f"{SVG}text").text


def test_lines_have_a_point_for_every_value_and_a_level():
    lines = [Line("one", (1, 10, 100), (0.1, 0.5, 0.8)), Line("two", (5,), (0.3,))]
    svg = ET.fromstring(line_chart("t", "tau", "passes", lines, ("ceiling", 0.9)))
    assert len(svg.findall(f"{SVG}circle")) == 4
    assert len(svg.findall(f"{SVG}polyline")) == 2
    words = [t.text for t in svg.findall(f"{SVG}text")]
    assert {"one", "two", "ceiling", "passes"} <= set(words)


def test_all_zero_is_still_a_chart():
    ET.fromstring(bar_chart("t", "u", [("s", [Bar("x", 0.0)])]))
