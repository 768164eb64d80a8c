"""NVIDIA's own tool, asked: `nvidia-smi --query-gpu=…`, a line for every GPU. Where it is not there, or does not answer
within seconds, nothing is known."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from deploynas.latency.command_output import output_of

ROOT = Path("/")
TIMEOUT_S = 5.0  # without its daemon the driver is loaded for each call, which takes a second or two


def query(fields: Sequence[str], root: Path = ROOT) -> list[dict[str, str]]:
    """The fields of every GPU that the tool knows a value of; empty where it cannot tell, or does not know a field."""
    command = shutil.which("nvidia-smi") or _of_wsl(root)
    if command is None:
        return []
    call = [command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    rows = [[cell.strip() for cell in line.split(",")] for line in (output_of(call, TIMEOUT_S) or "").splitlines()]
    return [
        {name: cell for name, cell in zip(fields, row, strict=True) if cell and not cell.startswith("[")}
        for row in rows
        if len(row) == len(fields)
    ]


def _of_wsl(root: Path) -> str | None:
    """Windows puts it there for its Linux, whose PATH may not have it."""
    path = root / "usr/lib/wsl/lib/nvidia-smi"
    return str(path) if path.is_file() else None
