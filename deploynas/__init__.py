"""deploynas: measure blocks on the device, learn what each decision is worth, solve exactly, ship ONNX.

The public API, loaded on first use: importing deploynas itself imports nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import Any

# `search` is a package of this name and the function in it. Once the package is loaded no later import of it
# or of its modules binds the name again, so the function, bound after it, stays.
from deploynas.search import search

__version__ = "0.1.0"

_HOMES = {
    "Space": "deploynas.space",
    "Architecture": "deploynas.space",
    "Costs": "deploynas.costs",
    "Device": "deploynas.device",
    "LatencyTable": "deploynas.latency.table",
    "profile": "deploynas.latency.profile",
    "BilinearEstimator": "deploynas.accuracy.bilinear",
    "QuadraticEstimator": "deploynas.accuracy.quadratic",
    "fit_bilinear": "deploynas.accuracy.learned",
    "fit_quadratic": "deploynas.accuracy.learned",
    "fit_mlp": "deploynas.accuracy.mlp",
    "Limit": "deploynas.search.problem",
    "frontier": "deploynas.search.frontier",
    "Supernet": "deploynas.supernet.network",
    "finetune": "deploynas.training.finetune",
    "DeployNASError": "deploynas.errors",
}
_MODULES = ("graph",)

__all__ = [*_HOMES, *_MODULES, "search"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"deploynas.{name}")
    raise AttributeError(f"module 'deploynas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
