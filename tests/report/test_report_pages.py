"""The report in a real browser: no errors, nothing fetched, the points are there, hovering shows an architecture."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploynas.errors import InputError
from deploynas.report.card import card
from deploynas.report.document import ReportFile
from deploynas.report.html import html
from deploynas.report.index import write_index
from deploynas.report.markdown import markdown

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
ARCHITECTURE = "ds_r1_k3_s1_e1_c8_nre | ir_r1_k3_s1_e2_c8_nre_se0.25 | ir_r1_k5_s2_e2.5_c16_nhs | cn_r1_k1_s1_c24_nhs"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def block(name: str, share: float, predicted: float | None) -> dict:
    shape = {"in_channels": 8, "out_channels": 8, "stride": 1, "height": 8, "width": 6, "params": 900, "macs": 40_000}
    text = "3×3, expand ×2, SE" if "stage" in name else "conv 3×3"
    return {
        "name": name,
        "kind": "block",
        "text": text,
        **shape,
        "share": share,
        "measured_ms": share,
        "predicted_ms": predicted,
    }


def file(precision: str, latency_ms: float, accuracy: float) -> dict:
    path = "model.onnx" if precision == "fp32" else "model.int8.onnx"
    timing = {
        "relative_error": 0.01,
        "stable": True,
        "percentiles_ms": {"p95": 1.2 * latency_ms},
        "throughput_per_s": 900.0,
    }
    return {
        "path": path,
        "precision": precision,
        "size_bytes": 90_000,
        "accuracy": accuracy,
        "latency_ms": latency_ms,
        **timing,
    }


@pytest.fixture
def report() -> ReportFile:
    frontier = [
        {"latency_ms": 0.5 + 0.1 * i, "accuracy": 0.7 + 0.02 * i, "architecture": ARCHITECTURE} for i in range(7)
    ]
    measured = {**frontier[3], "predicted_ms": 0.8, "predicted_accuracy": 0.76, "latency_ms": 0.83, "accuracy": 0.75}
    return ReportFile.model_validate(
        {
            "title": "tiny on <fast> & small",
            "created": "2030-01-01T00:00:00Z",
            "space": "tiny",
            "space_size": "72",
            "device": {
                "name": "fast",
                "provider": "cpu",
                "threads": 1,
                "batch": 1,
                "precision": "fp32",
                "statistic": "p20",
            },
            "hardware": {"processor": "A processor", "cores": 2},
            "data": {
                "name": "pets:/data",
                "classes": ["cat", "dog"],
                "train_images": 80,
                "validation_images": 20,
                "test_images": 0,
            },
            "architecture": ARCHITECTURE,
            "choices": [[0], [0]],
            "budget_ms": 0.9,
            "gated": "fp32",
            "params": 12_345,
            "macs": 1_234_567,
            "peak_memory_bytes": 4096,
            "predicted_ms": 0.8,
            "table_error": 0.017,
            "predicted_accuracy": 0.76,
            "predicted_accuracy_se": 0.004,
            "inherited_accuracy": 0.75,
            "test_accuracy": None,
            "files": [file("fp32", 0.84, 0.83), file("int8", 0.6, 0.82)],
            "blocks": [block("stem", 0.2, None), block("stage1/block1", 0.5, 0.3), block("stage2/block1", 0.3, 0.2)],
            "frontier": frontier,
            "measured": [measured],
            "table_networks": [{"predicted_ms": 0.7, "measured_ms": 0.72}],
            "rounds": [{"target_ms": 0.9, "predicted_ms": 0.9, "measured_ms": 0.95, "architecture": ARCHITECTURE}],
            "verification": {"batches": [1, 3, 8], "tolerance": 1e-4, "max_difference": 2e-6, "images": 20, "ties": 0},
            "calibration": {"method": "mse", "share": 0.05, "per_channel": True, "images": 4, "accuracy_drop": 0.01},
            "decisions": [
                {"name": "stage 1, kernel 3 → 5", "accuracy": 0.01, "accuracy_se": 0.001, "latency_ms": 0.1},
                {"name": "stage 2, se", "accuracy": -0.004},
            ],
            "warnings": ["the machine was <busy>"],
        }
    )


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
    assert "| latency | 0.800 ms ± 1.70 % | 0.840 ms ± 1.00 % | 0.900 ms |" in text
    assert "the machine was <busy>" in text
    _, header, body = card(report, triton=True).split("---\n", 2)
    described = yaml.safe_load(header)
    assert described["pipeline_tag"] == "image-classification" and described["datasets"] == ["pets"]
    values = [result["metrics"][0]["value"] for result in described["model-index"][0]["results"]]
    assert values == [0.83, 0.82]
    assert "tritonserver" in body and "python predict.py" in body


def test_the_index_links_every_bundle(report: ReportFile, tmp_path: Path) -> None:
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
        report.save(tmp_path / name / "report.json")
    page = write_index(tmp_path).read_text()
    assert 'href="fast/report.html"' in page and 'href="slow/report.html"' in page


PROBE = """
<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push("blocked " + event.blockedURI));
</script>
"""
HOVER = """
<script>
addEventListener("load", () => {
  const point = document.querySelectorAll("#frontier .point.predicted")[3];
  point.scrollIntoView({ block: "center" });
  const box = point.getBoundingClientRect();
  const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
  const found = document.elementFromPoint(at.clientX, at.clientY).closest("[data-tip]");
  (found || document.body).dispatchEvent(new PointerEvent("pointermove", at));
  const tip = document.getElementById("tip");
  document.body.dataset.result = JSON.stringify({
    tip: tip.textContent, shown: getComputedStyle(tip).visibility, same: found === point, problems,
    predicted: document.querySelectorAll("#frontier .point.predicted").length,
    measured: document.querySelectorAll("#frontier .point.measured").length,
    shipped: document.querySelectorAll("#frontier .point.shipped").length,
    budget: document.querySelectorAll("#frontier .budget").length,
    overflow: document.documentElement.scrollWidth > innerWidth,
  });
});
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
@pytest.mark.parametrize("window", ["1200,900", "500,900"])
def test_in_a_browser_the_points_are_there_and_hovering_shows_an_architecture(
    window: str, report: ReportFile, tmp_path: Path
) -> None:
    import html as escapes
    import json

    page = html(report).replace("<head>", "<head>" + PROBE, 1).replace("</body>", HOVER + "</body>")
    (tmp_path / "report.html").write_text(page)
    call = [str(BROWSER), *FLAGS, f"--window-size={window}", f"--user-data-dir={tmp_path / 'profile'}"]
    call += ["--enable-logging=stderr", "--dump-dom", (tmp_path / "report.html").as_uri()]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    match = re.search(r'data-result="([^"]*)"', done.stdout)
    assert match, done.stdout[-500:]
    seen = json.loads(escapes.unescape(match[1]))
    assert seen["problems"] == []
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
