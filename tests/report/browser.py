"""A page in a real browser: a script of the test's runs in it when it has loaded, and its result comes back."""

from __future__ import annotations

import html as escapes
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploynas.report.page import script_source

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
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
PROBE = """
<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push("blocked " + event.blockedURI));
</script>
"""
ASK = """
<script>
addEventListener("load", () => {
  const result = (() => { %s })();
  document.body.dataset.result = JSON.stringify({ ...result, problems });
});
</script>
"""


def seen_in(page: str, script: str, folder: Path, window: str = "1200,900", place: str = "") -> Any:
    """What `script` returns in the page; errors of the page and anything it tried to fetch fail."""
    ask = ASK % script  # behind the page's policy, which lets nothing run that it does not name
    own = script_source(ask.strip().removeprefix("<script>").removesuffix("</script>"))
    page = page.replace("script-src ", f"script-src {own} ", 1)
    page = page.replace("<head>", "<head>" + PROBE, 1).replace("</body>", ask + "</body>")
    (folder / "report.html").write_text(page)
    call = [str(BROWSER), *FLAGS, f"--window-size={window}", f"--user-data-dir={folder / 'profile'}"]
    call += ["--enable-logging=stderr", "--dump-dom", (folder / "report.html").as_uri() + place]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, done.stderr
    match = re.search(r'data-result="([^"]*)"', done.stdout)
    assert match, done.stdout[-500:]
    seen = json.loads(escapes.unescape(match[1]))
    assert seen["problems"] == []
    return seen
