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

from deploynas.device import Device
from deploynas.files import sha256_of, write_json
from deploynas.latency.provider_session import DEVICE_TYPE, provider_options
from deploynas.latency.session_settings import session_settings
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
    batch: int
    threads: int | str  # as the device file says; the number is in the session's options
    cores: list[int] | None  # the ones that were measured on: a package cannot pin a session to them
    processor: str
    versions: dict[str, str]
    provider_options: dict[str, str]  # that were measured: the package itself can have them for plug-ins only
    dimensions: dict[str, int]  # free dimensions that were fixed: a package cannot, the caller's options can
    environment: dict[str, str]  # variables that were set before the provider's library was loaded


@dataclass(frozen=True)
class Measured:
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
    device: Device
    models: Sequence[Measured]
    processor: str
    versions: dict[str, str]
    threads_of_all: int | None = None  # of the machine that measured, where that may be another one


def write_model_package(folder: Path, package: Package) -> None:
    """`folder/{manifest.json,DEVICE.PRECISION/model.onnx}`."""
    variants: dict[str, object] = {}
    for model in package.models:
        name = f"{package.device.name}.{model.precision}"
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


def _variant(package: Package, model: Measured, name: str) -> dict[str, object]:
    device = package.device
    hardware = str(device.provider_options.get(DEVICE_TYPE, "")).lower()
    options = provider_options(device, model.model, package.threads_of_all)
    settings = session_settings(device, package.threads_of_all).as_entries()
    kept_by_provider = (*device.record.cache_options, device.record.model_prefix_option)
    options = {key: told for key, told in options.items() if key not in kept_by_provider}
    return {
        "variant_directory": name,
        "ep": device.provider_name,
        # the runtime compares it with hardware that it knows of plug-ins alone: a built-in provider would not match
        **({"device": hardware} if device.record.plugin and hardware in ("cpu", "gpu", "npu") else {}),
        "executor_info": {
            "ort": {
                "model_file": MODEL_FILE,
                "session_options": {key: told for key, told in settings.items() if key not in _OUTPUT_FILES},
                # refused for providers that the runtime brings: who adds one of those gives it its options
                **({"provider_options": options} if device.record.plugin and options else {}),
            }
        },
        "additional_metadata": {"deploynas": _figures(package, model, options).model_dump(by_alias=True, mode="json")},
    }


def _figures(package: Package, model: Measured, options: dict[str, str]) -> PackageFigures:
    device = package.device
    return PackageFigures(
        device=device.name,
        precision=model.precision,
        recommended=model is package.models[0],
        sha256=sha256_of(model.model),
        size_bytes=model.model.stat().st_size,
        accuracy=model.accuracy,
        timing=model.timing,
        batch=device.batch,
        threads=device.threads,
        cores=None if device.cores is None else list(device.cores),
        processor=package.processor,
        versions=package.versions,
        provider_options=options,
        dimensions=dict(session_settings(device, package.threads_of_all).dimensions),
        environment=dict(device.record.environment.get(device.precision, {})),
    )
