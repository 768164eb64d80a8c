"""The frontier under a slider, in a real browser: dragging, arrow keys and links choose a network, and it is drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path

from browser import needs_browser, seen_in

from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.numbers import ms, percent

STATE = """
  const text = (id) => document.getElementById(id).textContent;
  const state = () => ({
    budget: Number(document.getElementById("budget").value), said: text("readout"), valuetext:
    document.getElementById("budget").getAttribute("aria-valuetext"), blocks:
    [...document.querySelectorAll("#network-blocks > div")].map((row) => [...row.children].map((c) => c.textContent)),
    drawn: document.querySelector(".drawing").outerHTML, hash: location.hash,
    ring: Number(document.querySelector("#frontier .ring").getAttribute("cx")),
    overflow: document.documentElement.scrollWidth > innerWidth,
  });
  const slider = document.getElementById("budget");
  const key = (name) => slider.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
"""


def check(state: dict, report: ReportFile, number: int) -> None:
    """What is shown is what `report.json` says of that network."""
    network = report.frontier[number]
    low, high = network.interval or (0.0, 0.0)
    for said in (percent(network.accuracy), f"{100 * low:.1f} to {100 * high:.1f} %", ms(network.latency_ms)):
        assert said in state["said"], (said, state["said"])
    fixed, *blocks = state["blocks"]
    assert fixed[0] == "fixed parts" and fixed[-1] == ms(network.fixed_ms)
    searched = [block for block in network.blocks if block.predicted_ms is not None]
    assert [(b[0], b[-1]) for b in blocks] == [(block.name, ms(block.predicted_ms)) for block in searched]
    for shown, block in zip(blocks, searched, strict=True):
        assert shown[1] == "".join([*block.text.split(", "), block.shape])


@needs_browser
def test_a_link_presets_the_budget(explorable: ReportFile, tmp_path: Path) -> None:
    state = seen_in(html(explorable), STATE + "return state();", tmp_path, place="#budget=0.65")
    check(state, explorable, 1)  # 0.6 ms is the slowest within 0.65 ms
    assert state["budget"] == 0.65 and "not measured" in state["said"]


@needs_browser
def test_keys_dragging_and_the_button_choose_networks(explorable: ReportFile, tmp_path: Path) -> None:
    script = """
      const seen = [state()];
      key("ArrowRight"); seen.push(state());
      key("ArrowRight"); seen.push(state());
      key("Home"); seen.push(state());
      key("ArrowLeft"); seen.push(state());
      key("End"); seen.push(state());
      slider.value = 0.79; slider.dispatchEvent(new Event("input")); seen.push(state());
      document.getElementById("to-shipped").click(); seen.push(state());
      return { seen };
    """
    seen = seen_in(html(explorable), STATE + script, tmp_path, window="500,900")["seen"]
    for state, number in zip(seen, [3, 4, 5, 0, 0, 6, 2, 3], strict=True):
        check(state, explorable, number)
        assert not state["overflow"]
    assert "shipped, measured: undisturbed 0.840 ms" in seen[0]["said"] and "75.00 % one-shot" in seen[0]["said"]
    assert "measured: 1.020 ms, 79.00 % one-shot" in seen[2]["said"]
    assert seen[1]["valuetext"].startswith("0.900 ms, expected accuracy 78.00 %")
    assert seen[5]["hash"] == f"#budget={explorable.frontier[6].latency_ms:.5f}"
    assert sorted(state["ring"] for state in seen[:3]) == [state["ring"] for state in seen[:3]]
    assert seen[-1]["drawn"] == seen[0]["drawn"]  # what the script draws is what stands there without it


@needs_browser
def test_a_shipped_network_that_is_not_on_the_frontier_can_be_returned_to(
    explorable: ReportFile, tmp_path: Path
) -> None:
    assert explorable.expected is not None
    other = explorable.expected.model_copy(update={"architecture": "another", "accuracy": 0.7123})
    report = explorable.model_copy(update={"expected": other, "architecture": "another"})
    script = """
      const seen = [state()];
      key("ArrowRight"); seen.push(state());
      document.getElementById("to-shipped").click(); seen.push(state());
      return { seen };
    """
    first, second, third = seen_in(html(report), STATE + script, tmp_path)["seen"]
    assert "71.23 %" in first["said"] and first["said"] == third["said"] and first["drawn"] == third["drawn"]
    check(second, report, 4)


def test_without_scripts_the_shipped_network_is_drawn(explorable: ReportFile) -> None:
    page = html(explorable)
    assert '<div class="slider" id="slider" hidden>' in page
    shown = page.split('id="network-blocks"')[1].split("<script")[0]
    assert shown.count("stage1/block") == 4 and "0.100 ms" in shown and "76.00 %" in page


def test_the_page_has_the_frontier_of_the_report_whatever_it_is_called(explorable: ReportFile) -> None:
    explorable.frontier[0].blocks[1].text = "</script><b>"
    match = re.search(r'<script type="application/json" id="frontier-data">(.*?)</script>', html(explorable))
    assert match
    networks = json.loads(match[1])["networks"]
    assert [network["latency_ms"] for network in networks] == [point.latency_ms for point in explorable.frontier]
    assert [network["architecture"] for network in networks] == [point.architecture for point in explorable.frontier]
    assert networks[0]["blocks"][1][1] == "</script><b>"


def test_a_frontier_of_an_earlier_version_is_a_plot_alone(report: ReportFile) -> None:
    page = html(report)
    assert 'id="frontier"' in page and "frontier-data" not in page.split("<script>")[0]
