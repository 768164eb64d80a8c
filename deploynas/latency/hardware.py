"""What machine this is and how busy: the fingerprint that tells whether two results may be compared."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel

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


def free_memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def versions() -> dict[str, str]:
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
