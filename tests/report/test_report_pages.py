"""The report as a page, as Markdown and as a model card; the page in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from browser import needs_browser, seen_in

from deploynas.errors import InputError
from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.index import write_index
from deploynas.report.markdown import markdown


def test_a_report_survives_its_file(report: ReportFile, tmp_path: Path) -> None:
    report.save(tmp_path / "report.json")
    assert ReportFile.load(tmp_path) == ReportFile.load(tmp_path / "report.json") == report
    assert report.prediction_error == pytest.approx(0.8 / 0.84 - 1)
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(InputError):
        ReportFile.load(tmp_path)


def test_the_page_needs_nothing_from_elsewhere(report: ReportFile) -> None:
    page = html(report)
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", page) and "@import" not in page and "http://" not in page
    assert "tiny on &lt;fast&gt; &amp; small" in page and "&lt;busy&gt;" in page
    assert page.count('class="point predicted"') == 7 + 1 + 2  # frontier, table network, two legends


def test_markdown_says_the_same_and_the_card_has_a_header(report: ReportFile) -> None:
    text = markdown(report)
    assert "| latency, undisturbed | 0.800 ms ± 1.70 % | 0.840 ms ± 1.00 % |  |" in text
    assert "| budget |  | held undisturbed, by the clock not known | 0.900 ms (undisturbed) |" in text
    assert "the machine was &lt;busy>" in text
    _, header, body = card(report, beside=["triton"]).split("---\n", 2)
    described = yaml.safe_load(header)
    assert described["pipeline_tag"] == "image-classification"
    assert "datasets" not in described and "license" not in described  # the hub has no `pets`, and nobody said
    (result,) = described["model-index"][0]["results"]
    assert [one["value"] for one in result["metrics"] if one["type"] == "accuracy"] == [0.83, 0.82]
    assert result["dataset"] == {"name": "pets", "type": "pets", "split": "validation"}
    assert "tritonserver" in body and "python predict.py" in body and "ort-package" not in body


def test_the_index_links_every_bundle(report: ReportFile, tmp_path: Path) -> None:
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
        report.save(tmp_path / name / "report.json")
    page = write_index(tmp_path).read_text()
    assert 'href="fast/report.html"' in page and 'href="slow/report.html"' in page


HOVER = """
  const point = document.querySelectorAll("#frontier .point.predicted")[3];
  point.scrollIntoView({ block: "center" });
  const box = point.getBoundingClientRect();
  const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
  const found = document.elementFromPoint(at.clientX, at.clientY).closest("[data-tip]");
  (found || document.body).dispatchEvent(new PointerEvent("pointermove", at));
  const tip = document.getElementById("tip");
  return {
    tip: tip.textContent, shown: getComputedStyle(tip).visibility, same: found === point,
    predicted: document.querySelectorAll("#frontier .point.predicted").length,
    measured: document.querySelectorAll("#frontier .point.measured").length,
    shipped: document.querySelectorAll("#frontier .point.shipped").length,
    budget: document.querySelectorAll("#frontier .budget").length,
    overflow: document.documentElement.scrollWidth > innerWidth,
  };
"""


@needs_browser
@pytest.mark.parametrize("window", ["1200,900", "500,900"])
def test_in_a_browser_the_points_are_there_and_hovering_shows_an_architecture(
    window: str, report: ReportFile, tmp_path: Path
) -> None:
    seen = seen_in(html(report), HOVER, tmp_path, window)
    assert (seen["predicted"], seen["measured"], seen["shipped"], seen["budget"]) == (7, 1, 1, 1)
    assert seen["shown"] == "visible" and seen["same"]
    assert "stage 1: k3 e2 SE" in seen["tip"] and "stage 2: k5 e2.5" in seen["tip"]
    assert not seen["overflow"]


def with_unknown_keys(value: object) -> object:
    if isinstance(value, dict):
        return {**{key: with_unknown_keys(inner) for key, inner in value.items()}, "from_the_future": 1}
    return [with_unknown_keys(inner) for inner in value] if isinstance(value, list) else value


def test_unknown_keys_are_ignored_at_every_level(report: ReportFile, tmp_path: Path) -> None:
    """Except where keys are names: of percentiles, versions, files and options of the runtime."""
    document = report.model_dump(by_alias=True, mode="json")
    newer = with_unknown_keys(document)
    for file, known in zip(newer["files"], document["files"], strict=True):
        file["percentiles_ms"] = known["percentiles_ms"]
    for names in ("versions", "lineage", "estimator_validation"):
        newer[names] = document[names]
    for names in ("provider_options", "session_options"):
        newer["device"][names] = document["device"][names]
    (tmp_path / "report.json").write_text(json.dumps(newer))
    assert ReportFile.load(tmp_path) == report


def test_a_space_has_one_size_in_words() -> None:
    from deploynas.report.numbers import how_many

    assert [how_many(n) for n in (72, 10**6, 5_300_000_000, 123 * 10**400)] == [
        "72",
        "1000000",
        "about 5.3e9",
        "about 1.2e402",
    ]
