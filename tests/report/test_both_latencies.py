"""Undisturbed and as it was: both on every page, and three outcomes of a budget that are told by word and by colour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import needs_browser, seen_in
from timed import timed
from timings import timing

from deploynas.cli.export import show
from deploynas.outcome import BudgetKind
from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.index import index
from deploynas.report.latency_words import held, served_words
from deploynas.report.markdown import markdown

GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "bundle"


def pages(report: ReportFile) -> dict[str, str]:
    served = "\n".join(served_words(report, report.shipped))
    return {
        "page": html(report),
        "Markdown": markdown(report),
        "card": card(report),
        "index": index({"fast": report}),
        "Triton": served,
    }


def test_every_page_has_both(current: ReportFile) -> None:
    for name, text in pages(current).items():
        assert "0.840 ms" in text and "undisturbed" in text, name
        assert "0.870 ms" in text and "on this machine as it was" in text, name
        assert "held by both" in text and "0.900 ms (undisturbed)" in text, name


def test_the_console_has_both(current: ReportFile, capsys: pytest.CaptureFixture[str]) -> None:
    show([current], as_json=False)
    out, err = capsys.readouterr()
    assert re.search(r"undisturbed +on this machine as it was \(median\) +budget", out)
    assert re.search(r"fast fp32 .* 0\.840 ms +0\.870 ms +0\.900 ms", out)
    assert re.search(r"fast int8 .* 0\.600 ms +0\.660 ms", out)
    said = " ".join(err.split())
    assert "fast: the budget of 0.900 ms (undisturbed) is held by both" in said
    assert "Measured again once, since others were busy" in said


def test_in_the_tile_they_have_equal_weight(current: ReportFile) -> None:
    tile = re.search(r'<div class="latency held">.*?</p></div>', html(current))
    assert tile
    assert re.findall(r'class="which">([^<]*)<.*?class="value">([\d.]+ ms)', tile[0]) == [
        ("undisturbed", "0.840 ms"),
        ("on this machine as it was", "0.870 ms"),
    ]
    assert "95 % interval 0.840 to 0.840 ms" in tile[0] and "p90 0.870 ms, p99 2.610 ms" in tile[0]


def test_how_it_was_measured_is_one_table(current: ReportFile) -> None:
    for said in (
        "| mean | 0.870 ms | 0.660 ms |",
        "| spread: fastest to slowest tenth, over the median | 10 % | 10 % |",
        "| timed | 300 inferences in 6 processes, 2 warm-up(s) before each group |",
        "| stability of the undisturbed latency | stable (± 0.0 %, at most ± 3 % is) |",
        "| `session.run` with arrays, from Python, adds | 0.0180 ms | – |",
        "| loading the session | 31.50 ms | – |",
        "| first inference | 2.250 ms | – |",
        "| peak memory of the process |",
        "| of it for the model |",
        "| inputs per second | 900, from the mean |",
        "Undisturbed is the fastest 5 % of its inferences",
        "Measured again once, since others were busy",
        "1.04 times slower than undisturbed (1.50 in the others)",
    ):
        assert said in markdown(current), said
    assert "How it was measured" in html(current) and "How it was measured" in card(current)


@pytest.mark.parametrize(
    ("quiet", "p50", "more", "kind", "colour", "phrase"),
    [
        (0.84, 0.87, 0.0, "undisturbed", "held", "held by both"),
        (0.84, 1.2, 0.0, "undisturbed", "held-undisturbed", "held undisturbed, missed by the clock"),
        (0.84, 0.87, 0.1, "undisturbed", "held-undisturbed", "held undisturbed, not always by the clock"),
        (0.95, 1.2, 0.0, "undisturbed", "missed", "missed by both"),
        (0.84, 0.87, 0.0, "p50", "held", "held by both"),
        (0.84, 1.2, 0.0, "p50", "missed", "missed by the clock"),
        (0.84, 0.87, 0.1, "p90", "missed", "missed by the clock"),
    ],
)
def test_three_outcomes_have_three_colours_and_words(
    current: ReportFile, quiet: float, p50: float, more: float, kind: BudgetKind, colour: str, phrase: str
) -> None:
    device = current.device.model_copy(update={"budget": kind})
    report = timed(current, timing(quiet, p50, more), device=device)
    about = "undisturbed" if kind == "undisturbed" else f"{kind} as it was"
    for name, text in pages(report).items():
        assert phrase in text and f"0.900 ms ({about})" in text, name
    for page in (html(report), index({"fast": report})):
        assert set(re.findall(r'<b class="outcome ([\w-]+)"', page)) == {colour}
    assert f'<div class="latency {colour}">' in html(report)


@needs_browser
def test_in_a_browser_the_three_colours_differ_and_nothing_overflows(current: ReportFile, tmp_path: Path) -> None:
    script = """
      const shown = document.querySelector(".latency .outcome");
      const sizes = [...document.querySelectorAll(".latency .value")].map((v) => getComputedStyle(v).fontSize);
      return { colour: getComputedStyle(shown).color, sizes,
               overflow: document.documentElement.scrollWidth > innerWidth };
    """
    colours = set()
    for quiet, p50 in ((0.84, 0.87), (0.84, 1.2), (0.95, 1.2)):
        seen = seen_in(html(timed(current, timing(quiet, p50))), script, tmp_path, window="500,900")
        assert not seen["overflow"] and len(seen["sizes"]) == 2 and len(set(seen["sizes"])) == 1
        colours.add(seen["colour"])
    assert len(colours) == 3


def test_a_budget_about_the_clock_is_no_line_among_undisturbed_latencies(current: ReportFile) -> None:
    assert 'class="budget"' in html(current)
    device = current.device.model_copy(update={"budget": "p90"})
    page = html(current.model_copy(update={"device": device}))
    assert 'class="budget"' not in page and "The budget is about another (p90 as it was)" in page


def test_without_a_budget_there_is_no_outcome(current: ReportFile) -> None:
    report = current.model_copy(update={"budget_ms": None, "outcome": None})
    assert held(report) is None
    for name, text in pages(report).items():
        assert "held" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL), name
        assert "0.840 ms" in text and "0.870 ms" in text, name


def test_reports_of_earlier_versions_show_what_they_have(report: ReportFile) -> None:
    for name, text in pages(report).items():
        assert "0.840 ms" in text and "held undisturbed, by the clock not known" in text, name
    for name, text in pages(ReportFile.load(GOLDEN)).items():
        assert "undisturbed" in text and "on this machine as it was" in text, name


@pytest.mark.parametrize(
    ("p50", "budget", "undisturbed", "phrase"),
    [
        (0.88, 0.9, True, "held by both"),
        (1.2, 0.9, True, "held undisturbed, missed by the clock"),
        (1.2, 0.8, True, "missed"),
        (0.84, 0.9, False, "held by the clock"),
        (0.84, 0.8, False, "missed"),
    ],
)
def test_an_earlier_report_has_an_outcome_too(
    report: ReportFile, p50: float, budget: float, undisturbed: bool, phrase: str
) -> None:
    report.files[0].percentiles_ms["p50"] = p50
    device = report.device.model_copy(update={"undisturbed": undisturbed})
    found = held(report.model_copy(update={"budget_ms": budget, "device": device}))
    assert found and found.phrase == phrase
    assert found.budget == f"{budget:.3f} ms ({'undisturbed' if undisturbed else 'p20 as it was'})"
