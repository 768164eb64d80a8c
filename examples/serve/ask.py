"""Ask a served model about images, as soon as it is ready: `python ask.py http://127.0.0.1:8000 IMAGE...`"""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

WAIT_S = 60


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=WAIT_S).close()
            return
        except urllib.error.URLError:  # nobody listens yet, or it warms up
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def ask(url: str, image: Path) -> str:
    request = urllib.request.Request(f"{url}/classify?top=3", image.read_bytes(), {"Content-Type": "image/*"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as refusal:
        return str(refusal.read().decode())


if __name__ == "__main__":
    base = sys.argv[1].rstrip("/")
    wait_until_ready(base)
    for path in sys.argv[2:]:
        print(f"{path}: {ask(base, Path(path))}")
