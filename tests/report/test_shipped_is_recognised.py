"""The shipped network has one latency and one name wherever it appears."""

from __future__ import annotations

import re

from deploynas.report.document import ReportFile
from deploynas.report.gain_words import gain_rows
from deploynas.report.html import html
from deploynas.report.markdown import markdown
from deploynas.report.rounds import round_rows


def figure(page: str, name: str) -> str:
    found = re.search(rf'<svg[^>]* id="{name}".*?</svg>', page, flags=re.DOTALL)
    assert found
    return found[0]


def test_it_is_one_named_mark_in_each_plot(current: ReportFile) -> None:
    page = html(current)
    for name in ("frontier", "prediction"):
        plot = figure(page, name)
        assert plot.count('class="point shipped"') == 1 and plot.count('class="point measured"') == 1, name
        assert re.findall(r'class="mark-text"[^>]*>([^<]*)<', plot) == ["shipped"], name
    tips = re.findall(r'aria-label="([^"]*)"', figure(page, "frontier"))
    assert sum("the shipped network" in tip for tip in tips) == 1  # among the predicted optima
    assert sum("undisturbed 0.840 ms, on this machine as it was 0.870 ms" in tip for tip in tips) == 1


def test_earlier_reports_say_that_it_was_timed_again(explorable: ReportFile) -> None:
    again = explorable.measured[0].model_copy(update={"architecture": explorable.architecture})
    explorable.measured.append(again)
    assert "The shipped network, timed again beside others" in html(explorable)


def test_the_scale_is_said_once(current: ReportFile) -> None:
    said = "beside the others the shipped network took 1.050 ms, as the file 0.840 ms, so all are multiplied by 0.800"
    assert html(current).count(said) == markdown(current).count(said) == 1


def test_the_table_of_what_was_gained_names_it(current: ReportFile) -> None:
    assert current.gain
    rows = gain_rows(current.gain, current.gain.one_shot)
    assert rows[0][:2] == ("found network (shipped)", "0.840 ms")
    assert rows[1][0] == "heaviest network"
    current.gain.of("heaviest")[0].architecture = current.architecture
    assert gain_rows(current.gain, current.gain.one_shot)[1][0] == "heaviest network: the shipped one itself"


def test_rounds_name_it(current: ReportFile, report: ReportFile) -> None:
    assert [row[1] for row in round_rows(current)] == [
        "another network, before fine-tuning",
        "shipped network, the exported file",
    ]
    assert [row[1] for row in round_rows(report)] == ["shipped network"]  # of an earlier version
