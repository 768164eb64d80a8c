"""Blocks add up to the measured whole, beside what the table says of them."""

from __future__ import annotations

import re

import pytest

from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.markdown import block_rows, markdown
from deploynas.report.whole import Whole


def test_milliseconds_are_shares_of_the_whole_and_sum_to_it(current: ReportFile) -> None:
    """20, 50 and 30 % of 0.84 ms undisturbed; the table says 0.3 and 0.2 ms of its 0.8."""
    milliseconds = [row[5] for row in block_rows(current)]
    assert milliseconds == ["0.168 ms", "0.420 ms", "0.252 ms"]
    assert sum(float(value.removesuffix(" ms")) for value in milliseconds) == pytest.approx(0.84)
    assert "| **sum** |  |  |  | 100.0 % | 0.840 ms | 0.800 ms, fixed parts 0.300 ms |" in markdown(current)


def test_the_page_has_the_same_sum_and_names_the_profilers_overhead(current: ReportFile) -> None:
    page = html(current)
    head = re.search(r'<div class="head">.*?</div>', page)
    total = re.search(r'<div class="sum">.*?</div>', page)
    assert head and total
    assert re.findall(r'class="number">([^<]*)<', head[0]) == ["share", "of the measured whole", "table"]
    assert re.findall(r'class="number">([^<]*)<', total[0]) == ["100.0 %", "0.840 ms", "0.800 ms"]
    assert "fixed parts take 0.300 ms" in total[0]
    for text in (page, markdown(current)):
        assert re.search(r"profiler made it 5\.1 times slower; its figures give the shares", text)


def test_what_runs_outside_blocks_has_a_row(current: ReportFile) -> None:
    current.blocks[1].share = 0.4
    assert block_rows(current)[-1][:6] == ("outside blocks", "", "", "", "10.0 %", "0.0840 ms")
    assert "outside blocks" in html(current)


def test_a_network_that_was_not_profiled_has_no_sum(current: ReportFile) -> None:
    for block in current.blocks:
        block.share = None
    whole = Whole.of(current)
    assert whole.measured_ms is None and whole.outside == 0.0
    assert "| **sum** |  |  |  | – | – | 0.800 ms" in markdown(current)
    assert "Blocks were not timed" in markdown(current) and "Blocks were not timed" in html(current)


def test_an_earlier_report_says_that_the_profiler_is_still_in_its_shares(report: ReportFile) -> None:
    assert "with its own time still in them" in html(report) and "with its own time still in them" in markdown(report)
