"""What machine this is and how busy: the fingerprint that tells whether two results may be compared."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.files import content_hash


class Hardware(BaseModel):
    """A machine by what its speed depends on. Equal `fingerprint`: results may be compared."""

    machine: str
    processor: str
    cores: int
    memory_gib: int
    system: str
    accelerators: list[str]
    fingerprint: str


@lru_cache(maxsize=1)
def hardware() -> Hardware:
    import psutil

    found = Hardware(
        machine=platform.machine(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30),
        system=platform.system(),
        accelerators=_nvidia_devices(),
        fingerprint="",
    )
    what_speed_depends_on = found.model_dump(include={"machine", "processor", "cores", "accelerators"})
    return found.model_copy(update={"fingerprint": content_hash(what_speed_depends_on)})


def load_average() -> list[float]:
    """Runnable processes over the last 1, 5 and 15 minutes."""
    import psutil

    return [round(value, 2) for value in psutil.getloadavg()]


def versions() -> dict[str, Any]:
    import numpy
    import onnx
    import onnxruntime

    import deploynas

    return {
        "deploynas": deploynas.__version__,
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def require_hardware(device: Device) -> None:
    """Refuse to measure on a machine that is not the one the device file describes."""
    expected, found, wrong = device.hardware, hardware(), []
    if expected.machine and expected.machine != found.machine:
        wrong.append(f"machine `{expected.machine}`, this is `{found.machine}`")
    if expected.processor_contains and expected.processor_contains.lower() not in found.processor.lower():
        wrong.append(f"a processor with `{expected.processor_contains}` in its name, this is `{found.processor}`")
    if expected.min_cores and expected.min_cores > found.cores:
        wrong.append(f"at least {expected.min_cores} cores, this has {found.cores}")
    if wrong:
        raise InputError(
            f"device `{device.name}` expects {'; '.join(wrong)}",
            hint="run this on that machine, or choose a device for this one (`deploynas devices`)",
        )


def _processor() -> str:
    """The processor's own name; `platform.processor()` is empty on most Linux systems."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for key in ("model name", "Model", "Hardware"):
            for line in cpuinfo.read_text(errors="replace").splitlines():
                if line.startswith(key) and ":" in line:
                    return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _nvidia_devices() -> list[str]:
    """Names from the driver's own files, so that nothing has to be started or installed to know them."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in information.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                names.append(line.split(":", 1)[1].strip())
    return names
