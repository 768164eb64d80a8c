"""What computes beside the processor: GPUs and NPUs by name, and the versions of their drivers.

Names come from the drivers' own files where there are any, so that nothing has to be started or installed to know them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploynas.latency import nvidia_smi
from deploynas.latency.kernel_files import numbered, text_of

ROOT = Path("/")
# makers of GPUs that a provider computes on; NVIDIA's have names, and a server's display chip is none
GPU_MAKERS = {"0x8086": "Intel", "0x1002": "AMD"}
NPU_MAKERS = {"0x8086": "Intel", "0x1022": "AMD", "0x17cb": "Qualcomm", "0x1da3": "Habana"}
MODULES = ("amdgpu", "amdxdna", "i915", "xe", "intel_vpu")  # drivers that may be newer than the kernel they are in


@dataclass(frozen=True)
class Accelerator:
    name: str
    on_chip: bool  # part of the processor, whose name implies it


def accelerators(root: Path = ROOT) -> list[Accelerator]:
    nvidia = [Accelerator(name, on_chip=False) for name in _nvidia_names(root)]
    return [*nvidia, *_in_folders(root / "sys/class/drm", "card"), *_in_folders(root / "sys/class/accel", "accel")]


def drivers(root: Path = ROOT) -> dict[str, str]:
    """By name; those that tell their version."""
    found = {name: version for name in MODULES if (version := text_of(root / "sys/module" / name / "version"))}
    if jetson := _jetson_linux(root):
        found["jetson-linux"] = jetson
    if nvidia := _nvidia_driver(root):
        found["nvidia"] = nvidia
    return found


def _nvidia_names(root: Path) -> list[str]:
    names = []
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        for line in (text_of(information) or "").splitlines():
            if line.startswith("Model:"):
                names.append(line.split(":", 1)[1].strip())
    # Windows, and Linux inside it, have no such files
    return names or [gpu["name"] for gpu in nvidia_smi.query(["name"], root) if "name" in gpu]


def _nvidia_driver(root: Path) -> str | None:
    said = text_of(root / "proc/driver/nvidia/version")
    if said:
        version = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", said)
        return version[0] if version else None
    return next((gpu["driver_version"] for gpu in nvidia_smi.query(["driver_version"], root) if gpu), None)


def _jetson_linux(root: Path) -> str | None:
    """`36.3.0`, which CUDA, cuDNN and TensorRT of a Jetson come with."""
    said = re.match(r"# R(\d+) \(release\), REVISION: ([\d.]+)", text_of(root / "etc/nv_tegra_release") or "")
    return f"{said[1]}.{said[2]}" if said else None


def _in_folders(folder: Path, kind: str) -> Iterator[Accelerator]:
    """Of one class of devices; `card0-HDMI-A-1` and the like are sockets."""
    makers, what = (GPU_MAKERS, "GPU") if kind == "card" else (NPU_MAKERS, "NPU")
    for path in numbered(folder, kind).values():
        device = path / "device"
        maker, model, revision = (text_of(device / name) for name in ("vendor", "device", "revision"))
        about = dict(line.split("=", 1) for line in (text_of(device / "uevent") or "").splitlines() if "=" in line)
        if maker is None:  # not on PCI
            if what == "NPU":
                yield Accelerator(f"NPU {about.get('DRIVER', 'of an unknown driver')}", on_chip=True)
        elif maker in makers or what == "NPU":
            # models that differ in how much of the chip is enabled may share a number, but for the revision
            number = f"{maker[2:]}:{(model or '0x')[2:]} rev {(revision or '0x')[2:]}".removesuffix(" rev ")
            # Intel puts what is inside the processor on the first bus, where no card can be
            inside = maker == "0x8086" and re.match(r"[0-9a-f]+:00:", about.get("PCI_SLOT_NAME", "")) is not None
            yield Accelerator(f"{makers.get(maker, '')} {what} {number}".strip(), on_chip=inside)
