"""A Triton model repository beside the model: one folder a file, with a batch that the server may gather."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploynas.device import Device
from deploynas.space import Space

MAX_BATCH = 64


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
    # a line is a class to the server: a name that broke a line would rename all that follow
    labels = [" ".join(label.split()) for label in served.labels]
    (place / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    (place / "config.pbtxt").write_text(_config(served), encoding="utf-8")


def _config(served: Served) -> str:
    space, device = served.space, served.device
    dims = f"[ {space.in_channels}, {space.height}, {space.width} ]"
    kind = "KIND_GPU" if device.record.memory == "cuda" else "KIND_CPU"
    # who compiles for shapes compiles for the batch that was measured; others take what the server gathers
    batch = device.batch if device.record.fixed_batch else MAX_BATCH
    lines = [
        *(f"# {line}" for line in served.about),
        f'name: "{served.name}"',
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {batch}",
        f'input [ {{ name: "input" data_type: TYPE_FP32 dims: {dims} }} ]',
        f'output [ {{ name: "logits" data_type: TYPE_FP32 dims: [ {space.classes} ] label_filename: "labels.txt" }} ]',
        "dynamic_batching { }",
        f"instance_group [ {{ kind: {kind} count: 1 }} ]",
    ]
    if device.threads != "all":
        lines.append(f'parameters {{ key: "intra_op_thread_count" value: {{ string_value: "{device.threads}" }} }}')
    if device.provider_name == "TensorrtExecutionProvider":
        lines.append(
            f"optimization {{ execution_accelerators {{ gpu_execution_accelerator: [ {_tensorrt(served)} ] }} }}"
        )
    return "\n".join(lines) + "\n"


def _tensorrt(served: Served) -> str:
    """Precision and shapes as they were measured: an engine for other shapes would be built when they come."""
    space, device = served.space, served.device
    shape = "x".join(str(size) for size in (device.batch, space.in_channels, space.height, space.width))
    told = {"precision_mode": {"fp32": "FP32", "fp16": "FP16", "int8": "INT8"}[device.precision]}  # none for bf16
    told |= {f"trt_profile_{which}_shapes": f"input:{shape}" for which in ("min", "opt", "max")}
    parameters = " ".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in told.items())
    return f'{{ name: "tensorrt" {parameters} }}'
