"""Ask a served model about images: `python ask.py http://127.0.0.1:8000/ IMAGE...`. Waits for the server to come up."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

WAIT_S = 20


def ask(url: str, image: Path) -> str:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data=image.read_bytes()), timeout=WAIT_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:  # the server is up and refuses
            return error.read().decode()
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    for path in sys.argv[2:]:
        print(f"{path}: {ask(sys.argv[1], Path(path))}")
