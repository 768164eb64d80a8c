"""What a target machine without PyTorch says."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command", ["train", "run", "import ofa x.pth", "estimate --supernet .", "finetune found.json", "export found"]
)
def test_a_command_that_needs_torch_says_so(command: str) -> None:
    code = f"""
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
sys.argv = ["deploynas", *{command.split()!r}]
from deploynas.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: this command needs PyTorch") and "Traceback" not in done.stderr
    assert 'hint: pip install "deploynas[train]"' in done.stderr
