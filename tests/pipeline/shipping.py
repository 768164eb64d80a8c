"""What commands that make bundles are told in tests, and what they answer."""

from __future__ import annotations

from typing import NamedTuple

FAST = ["--set", "finetune.epochs=1", "--set", "finetune.batch=100", "--set", "recalibration_images=100"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str
