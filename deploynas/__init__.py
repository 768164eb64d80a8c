"""deploynas: measure blocks on the device, learn what each decision is worth, solve exactly, ship ONNX.

The public API, loaded on first use: importing deploynas itself imports nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Space": "deploynas.space",
    "Architecture": "deploynas.space",
    "Costs": "deploynas.costs",
    "LatencyTable": "deploynas.latency.table",
    "Supernet": "deploynas.supernet.network",
    "DeployNASError": "deploynas.errors",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'deploynas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
