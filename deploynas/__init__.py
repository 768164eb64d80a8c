"""deploynas: measure blocks on the device, learn what each decision is worth, solve exactly, ship ONNX.

The public API, loaded on first use: importing deploynas itself imports nothing heavy.
"""

from __future__ import annotations

import importlib
from types import ModuleType
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
    "train": "deploynas.pipeline.train",
    "estimate": "deploynas.pipeline.estimate",
    "finetune": "deploynas.pipeline.finetune",
    "run": "deploynas.pipeline.run",
    "RunFolder": "deploynas.pipeline.run_folder",
    "DeployNASError": "deploynas.errors",
}
_MODULES = ("graph",)

__all__ = [*_HOMES, *_MODULES, "export", "search"]


class _ExportPackage(ModuleType):
    """The package `deploynas.export`, which is also the function of that name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return importlib.import_module("deploynas.pipeline.export").export(*arguments, **options)


export = importlib.import_module("deploynas.export")
export.__class__ = _ExportPackage


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"deploynas.{name}")
    raise AttributeError(f"module 'deploynas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
