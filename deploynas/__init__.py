"""deploynas: measure blocks on the device, learn what each decision is worth, solve exactly, ship ONNX.

The public API, loaded on first use: importing deploynas itself imports nothing heavy.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # packages that are called like a function look like one to a type checker
    from deploynas.pipeline.export import export as export
    from deploynas.search import search as search

__version__ = "0.1.0"

# every process of ours comes through here before it loads ONNX Runtime, which from 1.30 on writes an identifier below
# the user's home and uploads usage; what the user has set wins
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {
    "Space": "deploynas.space",
    "Architecture": "deploynas.space",
    "Costs": "deploynas.costs",
    "Device": "deploynas.device",
    "LatencyTable": "deploynas.latency.table",
    "profile": "deploynas.latency.profile",
    "BilinearEstimator": "deploynas.accuracy.bilinear",
    "QuadraticEstimator": "deploynas.accuracy.quadratic",
    "IndexedEstimator": "deploynas.accuracy.indexed",
    "fit_bilinear": "deploynas.accuracy.learned",
    "fit_quadratic": "deploynas.accuracy.learned",
    "fit_mlp": "deploynas.accuracy.mlp",
    "fit_indexed": "deploynas.accuracy.indexed_fit",
    "ask": "deploynas.space.coefficients",
    "Limit": "deploynas.search.problem",
    "frontier": "deploynas.search.frontier",
    "Supernet": "deploynas.supernet.network",
    "train": "deploynas.pipeline.train",
    "import_ofa": "deploynas.pipeline.import_ofa",
    "estimate": "deploynas.pipeline.estimate",
    "estimate_from_results": "deploynas.pipeline.results",
    "ResultsSettings": "deploynas.accuracy.results_estimation",
    "ResultsFormat": "deploynas.accuracy.results_table",
    "load_estimator": "deploynas.accuracy.estimator_file",
    "finetune": "deploynas.pipeline.finetune",
    "run": "deploynas.pipeline.run",
    "RunFolder": "deploynas.pipeline.run_folder",
    "DeployNASError": "deploynas.errors",
}
_MODULES = ("export", "graph", "search")  # the first and the last can be called, see `callable_module`

__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"deploynas.{name}")
    raise AttributeError(f"module 'deploynas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
