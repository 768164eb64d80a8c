"""What an exported file says about itself, in ONNX `metadata_props`: enough to use it without anything else.

`preprocessing`, `labels`, `provenance`, `forms` (of operators), and of 8-bit files `quantization` and `integers` are
JSON; `architecture`, `space` and `space_hash` come from `graph/`.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from pydantic import BaseModel

from deploynas import __version__
from deploynas.export.calibration import Calibration
from deploynas.files import now
from deploynas.provenance import DataRecord, NetworkLineage, TeacherRecord


class Preprocessing(BaseModel):
    """From an image file to the network's input: convert, resize, crop, scale to 0..1, normalise, channels first."""

    channels: int  # 1: grey, 3: RGB
    height: int
    width: int
    # the shorter side before a centre crop; None: resized to the input's size whatever the shape was
    resize_shorter_side: int | None
    interpolation: str = "bilinear"
    mean: list[float]
    std: list[float]


class Processor(BaseModel):
    """Whose integer kernels an 8-bit file was verified on, and whether those of any other compute the same."""

    machine: str = ""
    instruction_sets: list[str] = []
    sums: str = ""  # `exact`, or `saturating`; empty: not known
    any_processor: bool = False

    @property
    def lacks(self) -> str | None:
        """The instructions that make integers fast, where it is known not to have them."""
        wanted = {"x86_64": ("VNNI", "avx512_vnni", "avx_vnni"), "aarch64": ("dot products", "asimddp", "i8mm")}
        name, *sets = wanted.get(self.machine, ("",))
        known = bool(self.instruction_sets) and bool(sets)
        return name if known and not set(sets) & set(self.instruction_sets) else None


class Metadata(BaseModel):
    preprocessing: Preprocessing
    labels: list[str]
    data: DataRecord | None = None
    validation_accuracy: float | None = None
    lineage: NetworkLineage = NetworkLineage()
    teacher: TeacherRecord | None = None
    provider: str | None = None  # of ONNX Runtime, that it is measured on
    untrained: bool = False

    def props(self, precision: str, calibration: Calibration | None = None) -> dict[str, str]:
        made = self.model_dump(include={"data", "validation_accuracy", "lineage", "teacher"})
        made |= {"deploynas": __version__, "created": now()}
        if calibration:
            made["calibration"] = asdict(calibration)
        return {
            "preprocessing": self.preprocessing.model_dump_json(),
            "labels": json.dumps(self.labels, ensure_ascii=False),
            "precision": precision,
            **({"provider": self.provider} if self.provider else {}),
            **({"untrained": "true"} if self.untrained else {}),
            "provenance": json.dumps(made, ensure_ascii=False, allow_nan=False),
        }
