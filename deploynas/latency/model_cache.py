"""Models that came from another machine, by content: `~/.cache/deploynas/models/SHA256.onnx`.

The folder may be deleted at any time; what is needed again comes again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from deploynas.errors import DeployNASError
from deploynas.files import sha256_of, write_bytes


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deploynas" / "models"


def kept(sha256: str, fetch: Callable[[], bytes]) -> Path:
    """Where the model lies; it is fetched only if it is not there, or is damaged."""
    path = cache_folder() / f"{sha256}.onnx"
    if path.is_file() and sha256_of(path) == sha256:
        return path
    content = fetch()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DeployNASError("a model did not arrive as it was sent")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    except OSError as error:
        raise DeployNASError(f"{path}: cannot be written there ({error.strerror})") from error
    return path
