"""Pages of many networks and many bundles: nothing is looked through once for each of them, and nothing piles up."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.index import write_index


class Counted(list):
    """A list that knows how often it was looked through."""

    looks = 0

    def __iter__(self):
        self.looks += 1
        return super().__iter__()


def looks(report: ReportFile, networks: int) -> tuple[int, int]:
    """At the frontier and at the measured networks, while a page of so many networks is made."""
    frontier = Counted(report.frontier[i % 7] for i in range(networks))
    measured = Counted(report.measured * 3)
    html(report.model_copy(update={"frontier": frontier, "measured": measured}))
    return frontier.looks, measured.looks


def test_the_explorer_looks_through_its_networks_as_often_whatever_their_number(explorable: ReportFile) -> None:
    assert looks(explorable, 7) == looks(explorable, 70)


def test_of_a_network_that_was_measured_twice_the_first_is_shown(explorable: ReportFile) -> None:
    (point,) = explorable.measured
    twice = [point, point.model_copy(update={"latency_ms": 77.0})]
    page = html(explorable.model_copy(update={"measured": twice}))
    assert "measured: 1.020 ms" in page and "measured: 77" not in page


def test_the_index_holds_one_report_at_a_time(
    explorable: ReportFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(9):
        (tmp_path / f"bundle-{i}").mkdir()
        explorable.save(tmp_path / f"bundle-{i}" / "report.json")
    alive: weakref.WeakSet[ReportFile] = weakref.WeakSet()
    most, load = 0, ReportFile.load

    def watched(path: str | Path) -> ReportFile:
        nonlocal most
        report = load(path)
        alive.add(report)
        gc.collect()
        most = max(most, len(alive))
        return report

    monkeypatch.setattr(ReportFile, "__hash__", object.__hash__)
    monkeypatch.setattr(ReportFile, "load", watched)
    page = write_index(tmp_path).read_text()
    assert page.count("/report.html") == 9
    assert most <= 2
