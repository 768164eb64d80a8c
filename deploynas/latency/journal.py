"""What has been measured so far, on disk: a crash, a kill or Ctrl-C costs the visit in hand and no more.

A journal is JSON lines: a header that says what is being measured, then one visit a line. It is continued only by
a run with the same header.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from deploynas.files import write_bytes
from deploynas.latency.worker import Visit


class Journal:
    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self.visits: list[Visit] = []  # in the order they were made
        self.resumed = self._read(header)
        if not self.resumed:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, (json.dumps(header) + "\n").encode())
        self._file = path.open("a", encoding="utf-8")

    def add(self, visit: Visit) -> None:
        self.visits.append(visit)
        try:
            self._file.write(visit.model_dump_json() + "\n")
            self._file.flush()
        except OSError as error:
            error.filename = str(self.path)  # a full disk does not say which file it was
            raise

    def counts(self, worker: int) -> Counter[str]:
        """How often a worker has visited each entry."""
        return Counter(visit.entry for visit in self.visits if visit.worker == worker)

    def close(self) -> None:
        with suppress(OSError):  # what a full disk did not take was reported when it was added
            self._file.close()

    def _read(self, header: dict[str, Any]) -> bool:
        if not self.path.exists():
            return False
        first, *rest = self.path.read_bytes().splitlines(keepends=True) or [b""]
        try:
            if not first.endswith(b"\n") or json.loads(first) != json.loads(json.dumps(header)):
                return False
        except ValueError:  # cut, or never one of ours
            return False
        complete = len(first)
        for line in rest:
            try:
                visit = Visit.model_validate_json(line)
            except ValidationError:
                break  # the line that the kill cut
            if not line.endswith(b"\n"):
                break
            self.visits.append(visit)
            complete += len(line)
        # cut where it is; while it is written again, a kill or a full disk would cost every visit
        os.truncate(self.path, complete)
        return True
