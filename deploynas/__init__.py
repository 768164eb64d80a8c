"""deploynas: measure blocks on the device, learn what each decision is worth, solve exactly, ship ONNX."""

from __future__ import annotations

__version__ = "0.1.0"
