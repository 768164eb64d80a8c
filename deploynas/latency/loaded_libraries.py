"""Which builds of CUDA, cuDNN, TensorRT and their like this process has loaded: what was installed last, or lies first
on the path, need not be what runs. Only Linux tells."""

from __future__ import annotations

import re
from pathlib import Path

from deploynas.latency.kernel_files import text_of

ROOT = Path("/")
LIBRARIES = (
    "cudart",
    "cublas",
    "cudnn",
    "nvinfer",
    "openvino",
    "migraphx",
    "amdhip64",
    "QnnHtp",
    "QnnCpu",
    "onnxruntime",
)
LIBRARY = re.compile(rf"/lib({'|'.join(LIBRARIES)})\.so(?:\.([\d.]+))?$")


def loaded_libraries(root: Path = ROOT) -> dict[str, str]:
    """Versions by name, as their file names have them; empty for a file without one."""
    found: dict[str, str] = {}
    for line in (text_of(root / "proc/self/maps") or "").splitlines():
        library = LIBRARY.search(line)
        if library:
            found[library[1]] = library[2] or ""
    return dict(sorted(found.items()))
