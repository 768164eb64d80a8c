"""Standard output carries results: what a solver's own code prints there is lost, what we print is not."""

from __future__ import annotations

import subprocess
import sys

PRINTS = """
import os
from deploynas.search.solver_output import nothing_on_stdout
print("before")
with nothing_on_stdout():
    os.write(1, b"noise of a library\\n")
print("after")
"""


def test_only_the_solver_is_silenced():
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["before", "after"] and done.stderr == ""


def test_a_closed_output_stays_closed():
    done = subprocess.run(
        [sys.executable, "-c", f"import os\nos.close(1)\n{PRINTS.replace('print', '#')}"],
        check=False,
        capture_output=True,
    )
    assert done.returncode == 1  # the write fails as it would have: nothing was opened in its place
