"""What happened while training: one JSON line a record in metrics.jsonl, and TensorBoard if installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from deploynas.files import write_bytes

FILE = "metrics.jsonl"


class Metrics:
    """Appends records; a phase that resumes at a step first drops what was recorded after it."""

    def __init__(self, folder: Path, enabled: bool = True) -> None:
        self.path = folder / FILE
        self.enabled = enabled
        self._board = _tensorboard(folder) if enabled else None

    def resume(self, phase: str, step: int) -> None:
        """Forget records of this phase beyond `step` (the run was killed after its last checkpoint)."""
        if not self.enabled or not self.path.exists():
            return
        kept = [r for r in read(self.path) if r["phase"] != phase or r["step"] <= step]
        write_bytes(self.path, "".join(json.dumps(r) + "\n" for r in kept).encode())

    def add(self, phase: str, step: int, **values: float) -> None:
        if not self.enabled:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"phase": phase, "step": step, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(f"{phase}/{name}", value, step)


def read(path: Path) -> list[dict[str, Any]]:
    """The complete records of a file; a last line cut off by a kill is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def _tensorboard(folder: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))
