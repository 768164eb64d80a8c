"""Measuring leaves nothing behind in the user's home, and sends nothing: the runtime's telemetry is off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROFILE = """
import deploynas as dn
device = dn.Device.load("quick.yaml")
dn.profile(device, dn.Space.load("fashion")).save("table.json")
"""
DEVICE = """
name: quick
provider: cpu
effort: {workers: 1, visits: 2, part_visits: 2, warmup_runs: 0, runs: 2, min_visit_ms: 0.0, correction_networks: 4,
         validation_networks: 2, max_relative_error: 1.0, time_limit_s: 0.1}
"""


def test_a_profile_writes_its_table_and_nothing_else(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "quick.yaml").write_text(DEVICE)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment = {**kept, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", PROFILE], cwd=work, env=environment, check=True)
    assert list(home.rglob("*")) == []
    assert sorted(path.name for path in work.iterdir()) == ["quick.yaml", "table.json"]


def test_the_users_own_setting_wins() -> None:
    code = "import deploynas, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    for given, seen in (({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")):
        environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, **given}, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == seen
