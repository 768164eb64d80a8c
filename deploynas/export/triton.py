"""A Triton model repository beside the model: one folder a file, with a batch that the server may gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploynas.device import Device
from deploynas.space import Space

MAX_BATCH = 64
_GPU = ("CUDAExecutionProvider", "TensorrtExecutionProvider")


@dataclass(frozen=True)
class Served:
    """A model that a server is to have."""

    name: str
    model: bytes
    space: Space
    labels: Sequence[str]
    device: Device
    about: Sequence[str] = ()  # comment lines for whoever reads its configuration: what was measured


def write_repository(folder: Path, served: Served) -> None:
    """`folder/NAME/{config.pbtxt,labels.txt,1/model.onnx}`."""
    place = folder / served.name
    (place / "1").mkdir(parents=True)
    (place / "1" / "model.onnx").write_bytes(served.model)
    (place / "labels.txt").write_text("\n".join(served.labels) + "\n", encoding="utf-8")
    (place / "config.pbtxt").write_text(_config(served), encoding="utf-8")


def _config(served: Served) -> str:
    space, device = served.space, served.device
    dims = f"[ {space.in_channels}, {space.height}, {space.width} ]"
    kind = "KIND_GPU" if device.provider_name in _GPU else "KIND_CPU"
    lines = [
        *(f"# {line}" for line in served.about),
        f'name: "{served.name}"',
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {MAX_BATCH}",
        f'input [ {{ name: "input" data_type: TYPE_FP32 dims: {dims} }} ]',
        f'output [ {{ name: "logits" data_type: TYPE_FP32 dims: [ {space.classes} ] label_filename: "labels.txt" }} ]',
        "dynamic_batching { }",
        f"instance_group [ {{ kind: {kind} count: 1 }} ]",
    ]
    if device.threads != "all":
        lines.append(f'parameters {{ key: "intra_op_thread_count" value: {{ string_value: "{device.threads}" }} }}')
    if device.provider_name == "TensorrtExecutionProvider":
        lines.append('optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" } ] } }')
    return "\n".join(lines) + "\n"
