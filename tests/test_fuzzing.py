"""A short run of the fuzzer over every reader, as a command; the long ones are made by hand (benchmarks/fuzz.py).

Its own watch is tested too: a reader that crashes, hangs, writes elsewhere or says too much must be told on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CASES = 8
NOT_TRAINING = ("device", "space", "table", "bench", "estimator", "search-result", "report", "manifest", "results")

WATCHED = """
import json, sys, subprocess
sys.path[:0] = [{benchmarks!r}, {root!r}]
from pathlib import Path
from fuzzing import watched
from deploynas.errors import DeployNASError, InputError

watched.TIME_LIMIT_S = 0.2
inside = Path("inside")
inside.mkdir()
watch = watched.Watch(inside)

def refused(*said):
    def read():
        raise InputError(*said)
    return read

def crashed():
    raise KeyError("latency_ms")

def failed():
    raise DeployNASError("not an error of input")

def hung():
    while True:
        pass

cases = {{
    "well": lambda: (inside / "file").write_text("x"),
    "refused": refused("no", "do this"),
    "crashed": crashed,
    "failed": failed,
    "hung": hung,
    "wrote": lambda: Path("elsewhere").write_text("x"),
    "ran": lambda: subprocess.run(["true"]),
    "paragraphs": refused("one\\n\\ntwo"),
    "essay": refused("x\\n" * 3000),
}}
print(json.dumps({{name: watch.run(read).how for name, read in cases.items()}}))
"""


def test_the_watch_sees_what_it_is_there_for(tmp_path: Path) -> None:
    code = WATCHED.format(benchmarks=str(BENCHMARKS), root=str(BENCHMARKS.parent))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "well": "accepted",
        "refused": "refused",
        "crashed": "traceback",
        "failed": "exit code",
        "hung": "hang",
        "wrote": "touched",
        "ran": "touched",
        "paragraphs": "message",
        "essay": "message",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="the watch asks Linux for the memory of a process")
def test_no_reader_is_surprised_by_a_few_cases(tmp_path: Path) -> None:
    chosen = [word for name in NOT_TRAINING for word in ("--reader", name)]
    call = [sys.executable, str(BENCHMARKS / "fuzz.py"), "--cases", str(CASES), "--json", str(tmp_path / "found.json")]
    done = subprocess.run(
        [*call, "--failures", str(tmp_path / "failures"), *chosen], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["cases"] == CASES * len(NOT_TRAINING) and found["failed"] == 0
    for name, tally in found["readers"].items():
        assert tally["accepted"] + tally["refused"] == CASES, name
    assert sum(tally["accepted"] for tally in found["readers"].values()) > CASES
