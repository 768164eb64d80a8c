"""What was gained, in words: one kind of accuracy at a time, and no more than the images can tell."""

from __future__ import annotations

import re

import pytest

from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.gain_words import headline, verdict
from deploynas.report.html import html
from deploynas.report.markdown import markdown


def test_the_headline_is_of_fine_tuned_networks_where_there_are_some(explorable: ReportFile) -> None:
    assert headline(explorable) == (
        "84.6 % (fine-tuned, 2000 test images), 2.3 times faster than the heaviest network at 86.0 %; "
        "1 random network of its latency: 81.1 ± 0.4 %"
    )
    assert explorable.gain is not None
    explorable.gain.fine_tuned = None
    assert headline(explorable) == (
        "75.0 % (one-shot, 2000 validation images), 2.3 times faster than the heaviest network at 86.0 %; "
        "2 random networks of its latency: 71.0 ± 0.4 %"
    )


@pytest.mark.parametrize(
    ("interval", "words"),
    [((0.01, 0.06), "Searching was worth"), ((-0.02, 0.03), "No difference"), ((-0.05, -0.01), "are better")],
)
def test_the_verdict_goes_with_the_interval(explorable: ReportFile, interval: tuple, words: str) -> None:
    assert explorable.gain is not None and explorable.gain.fine_tuned is not None
    random = explorable.gain.fine_tuned.of("random")
    assert random is not None
    random.interval = interval
    assert words in verdict(explorable)


def test_no_row_and_no_sentence_has_both_kinds_of_accuracy(explorable: ReportFile) -> None:
    """75 % is one-shot; 84.6 % (test) and 83 % (validation) are fine-tuned."""
    explorable.test_accuracy = 0.846
    for text in (markdown(explorable), card(explorable)):
        for line in text.splitlines():
            said = line.split("; ")
            assert not any("75.0" in one and ("84.6" in one or "83.0" in one) for one in said), line
    assert "one-shot accuracy" not in card(explorable) and "76.00" not in card(explorable)
    rows = re.findall(r"<tr>.*?</tr>", html(explorable))
    assert not any("75.0" in row and ("84.6" in row or "83.0" in row) for row in rows)


def test_everything_leads_with_it(explorable: ReportFile) -> None:
    page, text = html(explorable), markdown(explorable)
    assert page.index(headline(explorable)) < page.index('class="tiles"') < page.index('id="explorer"')
    assert text.index(headline(explorable)) < text.index("| latency, undisturbed |")
    assert headline(explorable) in card(explorable)
    assert "with the weights that a network inherits" in page and "with the weights that a network inherits" in text


def test_a_report_without_a_comparison_says_nothing_of_one(report: ReportFile) -> None:
    assert headline(report) == verdict(report) == ""
    assert "What was gained" not in html(report)


def test_changes_answer_three_questions(explorable: ReportFile) -> None:
    text = markdown(explorable)
    sections = dict(re.findall(r"## (What would [^\n]*)\n\n(.*?)\n\n", text, flags=re.DOTALL))
    firsts = {title: rows.splitlines()[2].split(" | ")[0] for title, rows in sections.items()}
    assert firsts == {
        "What would make it more accurate": "| stage 1, depth 1 → 2",
        "What would bring most per millisecond": "| stage 1, kernel 3 → 5",
        "What would make it faster for the least accuracy": "| stage 2, kernel 5 → 3",
    }
    assert "| stage 1, depth 1 → 2 | +2.00 | +0.2000 ms |" in text
