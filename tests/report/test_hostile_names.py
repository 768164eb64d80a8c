"""A report from a stranger, with markup wherever text may stand: nothing of it acts, neither escaped nor slipped in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, seen_in

from deploynas.accuracy.insights import InsightsFile
from deploynas.files import parse_json
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.index import index
from deploynas.report.insights_page import page
from deploynas.report.markdown import markdown

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
HOSTILE = """'"--></title></style></script><script>acted=1</script><img src=x onerror="acted=1"><b onclick=acted=1>"""
# of these a report knows every word that there may be
WORDS = (
    "schema",
    "precision",
    "gated",
    "role",
    "weights",
    "part",
    "asked",
    "how",
    "outcome",
    "path",
    "provider",
    "budget",
)
SEEN = (
    "return { acted: window.acted ?? null, elements: document.querySelectorAll('img, [onclick], [onerror]').length };"
)


def with_markup(value: Any, key: str = "") -> Any:
    """Everything that is free text ends with markup."""
    if isinstance(value, dict):
        return {k: v if k in ("device", "lineage") else with_markup(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [with_markup(item, key) for item in value]
    return value + HOSTILE if isinstance(value, str) and key not in WORDS else value


@pytest.fixture
def hostile(current: ReportFile) -> ReportFile:
    return ReportFile.model_validate(with_markup(current.model_dump(by_alias=True)))


@needs_browser
def test_names_with_markup_are_text_in_the_page(hostile: ReportFile, tmp_path: Path) -> None:
    for text in (html(hostile), index({"one": hostile})):
        assert seen_in(text, SEEN, tmp_path) == {"acted": None, "elements": 0, "problems": []}


@needs_browser
def test_insights_with_markup_are_text_in_the_page(tmp_path: Path) -> None:
    found = parse_json(GOLDEN / "insights.with-costs.json", InsightsFile)
    hostile = InsightsFile.model_validate(with_markup(found.model_dump(by_alias=True), "schema"))
    assert seen_in(page(hostile), SEEN, tmp_path)["acted"] is None


@needs_browser
@pytest.mark.parametrize("slipped", ["<script>acted=1</script>", "<img src=data:, onerror=acted=1>"])
def test_the_policy_stops_what_escaping_would_have_missed(current: ReportFile, slipped: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Content Security Policy"):
        seen_in(html(current).replace("<main>", f"<main>{slipped}"), SEEN, tmp_path)


def test_markdown_has_no_elements(hostile: ReportFile) -> None:
    assert "<" not in markdown(hostile).replace(f"`{hostile.architecture}`", "")
