"""ONNX Runtime's model package: a folder in which every model stands with the options that it was measured with.

The format is described in `model_package/README.md` and `onnxruntime/core/session/model_package/README.md` of ONNX
Runtime (schema 1.0). Of variants that fit a provider equally well the runtime takes the first in the manifest, so the
recommended one stands first. A portable package has no paths out of its folder: the models are copied into it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from deploynas.files import sha256_of, write_json
from deploynas.latency.session_record import SessionRecord
from deploynas.timing import Timing

# options that name files to write: the runtime refuses a package with any of them
_OUTPUT_FILES = (
    *("session.debug_layout_transformation", "session.collect_node_memory_stats_to_file"),
    *("session.enable_profiling", "session.optimized_model_filepath"),
)
PACKAGE, MANIFEST, COMPONENT, MODEL_FILE = "ort-package", "manifest.json", "classifier", "model.onnx"


class PackageFigures(BaseModel):
    """Our part of a variant: what was measured, on what, and what the format has no words for."""

    schema_: Literal["deploynas/package-variant"] = Field(default="deploynas/package-variant", alias="schema")
    schema_version: int = 1
    device: str
    precision: str
    recommended: bool
    sha256: str
    size_bytes: int
    accuracy: float | None  # of the validation images; None: untrained
    timing: Timing | None
    processor: str
    versions: dict[str, str]
    session: SessionRecord  # how it was opened: with it, whoever opens the session can do what a package cannot


@dataclass(frozen=True)
class MeasuredModel:
    """A model of the bundle, and what a report says of it."""

    model: Path
    precision: str
    accuracy: float | None
    timing: Timing | None


@dataclass(frozen=True)
class Package:
    """What is to be packaged: models for one device, the recommended one first."""

    name: str
    description: str
    device: str  # its name
    models: Sequence[MeasuredModel]
    processor: str
    versions: dict[str, str]
    session: SessionRecord  # how the models were opened when they were timed


def write_model_package(folder: Path, package: Package) -> None:
    """`folder/{manifest.json,DEVICE.PRECISION/model.onnx}`."""
    variants: dict[str, object] = {}
    for model in package.models:
        name = f"{package.device}.{model.precision}"
        (folder / name).mkdir(parents=True)
        shutil.copyfile(model.model, folder / name / MODEL_FILE)
        variants[name] = _variant(package, model, name)
    manifest = {
        "schema_version": "1.0",
        "package_name": package.name,
        "description": package.description,
        "layout": "portable",
        "components": {COMPONENT: {"variants": variants}},
    }
    write_json(folder / MANIFEST, manifest)


def _variant(package: Package, model: MeasuredModel, name: str) -> dict[str, object]:
    session = package.session
    hardware = (session.device_type or "").lower()
    return {
        "variant_directory": name,
        "ep": session.provider,
        # the runtime compares it with hardware that it knows of plug-ins alone: a built-in provider would not match
        **({"device": hardware} if hardware in ("cpu", "gpu", "npu") else {}),
        "executor_info": {
            "ort": {
                "model_file": MODEL_FILE,
                "session_options": _session_options(session),
                # refused for providers that the runtime brings: who adds one of those gives it its options
                **({"provider_options": session.provider_options} if session.plugin else {}),
            }
        },
        "additional_metadata": {"deploynas": _figures(package, model).model_dump(by_alias=True, mode="json")},
    }


def _session_options(session: SessionRecord) -> dict[str, str]:
    """By the names that the runtime reads, with the level of optimisation that its sessions begin with."""
    said = {
        "session.intra_op_num_threads": str(session.intra_op_threads),
        "session.inter_op_num_threads": str(session.inter_op_threads),
        "session.graph_optimization_level": "enable_all",
        **session.session_options,  # a device file may have named any of them
    }
    return {key: told for key, told in said.items() if key not in _OUTPUT_FILES}


def _figures(package: Package, model: MeasuredModel) -> PackageFigures:
    return PackageFigures(
        device=package.device,
        precision=model.precision,
        recommended=model is package.models[0],
        sha256=sha256_of(model.model),
        size_bytes=model.model.stat().st_size,
        accuracy=model.accuracy,
        timing=model.timing,
        processor=package.processor,
        versions=package.versions,
        session=package.session,
    )
