"""What a device's own provider makes of images, where it computes otherwise than the CPU provider does.

Nobody but the provider computes in bf16, and many CPUs have no fp16: the CPU provider would judge such files in fp32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deploynas.device import Device
from deploynas.errors import DeployNASError, GateError
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.network_file import Bf16File, Fp32File
from deploynas.export.verification import ImageStream, Judged, judged, judged_by
from deploynas.latency.agreement import TOLERANCE, difference, require_bf16
from deploynas.latency.provider_session import open_session
from deploynas.providers import CPU


def judge_of(device: Device) -> Callable[[bytes, ImageStream], Judged]:
    """Who classifies with a file for this device: its provider, or the CPU's where that is on another machine."""
    if device.host is not None or device.provider_name == CPU:
        return judged
    return partial(judged_on, device)


def judged_on(device: Device, content: bytes, images: ImageStream) -> Judged:
    """What a file makes of images on the device, opened as it is when it is measured."""
    with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        session = open_session(path, device)
        batch = device.batch if device.record.fixed_batch else None
        return judged_by(lambda x: _logits(session, x, batch), images)


def bf16_file(fp32: Fp32File, device: Device, validation: ImageStream) -> Bf16File:
    """The fp32 file, judged as a device with `precision: bf16` computes it.

    Raises `GateError` where that is fp32 all the same, or another function.
    """
    if device.host is not None:
        return Bf16File(fp32.content, None, "its provider is on another machine, and no other computes in bf16")
    found, expected = judged_on(device, fp32.content, validation), judged(fp32.content, validation)
    try:
        require_bf16(found.logits, expected.logits, device)
    except DeployNASError as error:
        raise GateError(error.message, hint=error.hint) from error
    off = difference(found.logits, expected.logits)
    if not off <= TOLERANCE["bf16"]:  # NaN is not
        raise GateError(
            f"`{device.provider_name}` computes something else in bf16: logits are off by {off:.2g} of their size, at "
            f"most {TOLERANCE['bf16']:g} is rounding",
            hint="`precision: fp32`",
        )
    return Bf16File(fp32.content, AccuracyDrop.between(fp32.verification.correct, found.correct))


def _logits(session: Any, images: np.ndarray, batch: int | None) -> np.ndarray:
    """Where the batch is fixed, the rest of the last one is filled up."""
    if batch is None:
        return session.run(None, {"input": images})[0]
    rows = []
    for start in range(0, len(images), batch):
        part = images[start : start + batch]
        whole = np.resize(part, (batch, *part.shape[1:]))  # goes round again
        rows.append(session.run(None, {"input": whole})[0][: len(part)])
    return np.concatenate(rows)
