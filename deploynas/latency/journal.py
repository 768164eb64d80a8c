"""What has been measured so far, on disk: a crash, a kill or Ctrl-C costs the visit in hand and no more.

A journal is JSON lines: a header that says what is being measured, then one visit a line. It is continued only by
a run with the same header.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deploynas.latency.worker import Visit


class Journal:
    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.visits: list[Visit] = []  # in the order they were made
        self.resumed = self._read(header)
        if not self.resumed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(header) + "\n", encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def add(self, visit: Visit) -> None:
        self.visits.append(visit)
        self._file.write(visit.model_dump_json() + "\n")
        self._file.flush()

    def counts(self, worker: int) -> Counter[str]:
        """How often a worker has visited each entry."""
        return Counter(visit.entry for visit in self.visits if visit.worker == worker)

    def close(self) -> None:
        self._file.close()

    def _read(self, header: dict[str, Any]) -> bool:
        if not self.path.exists():
            return False
        text = self.path.read_text(encoding="utf-8", errors="replace")
        first, *rest = text.splitlines() or [""]
        try:
            if json.loads(first) != json.loads(json.dumps(header)):
                return False
        except json.JSONDecodeError:
            return False
        complete = [first]
        for line in rest:
            try:
                visit = Visit.model_validate_json(line)
            except ValidationError:
                break  # the line that the kill cut
            self.visits.append(visit)
            complete.append(line)
        if "\n".join(complete) + "\n" != text:
            self.path.write_text("\n".join(complete) + "\n", encoding="utf-8")
        return True
