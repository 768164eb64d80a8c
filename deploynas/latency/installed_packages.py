"""Versions of the packages that providers compute with: the build of the runtime, CUDA, cuDNN, TensorRT, OpenVINO."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import Distribution, distributions

COMPUTES = re.compile(
    r"onnxruntime-(?!extensions|genai|tools).+|nvidia-(cuda-runtime|cudnn)(-cu\d+)?|tensorrt.*|openvino"
)
# says the same as another one
REPEATS = re.compile(r"tensorrt.*[-_](libs|bindings)")


def versions_of(installed: Iterable[Distribution]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in installed:
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        if COMPUTES.fullmatch(name) and not REPEATS.fullmatch(name):
            found.setdefault(name, package.version)  # the first on the path is the one that is imported
    return dict(sorted(found.items()))


@lru_cache(maxsize=1)
def provider_packages() -> dict[str, str]:
    return versions_of(distributions())
