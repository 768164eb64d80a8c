"""Does a provider compute what the CPU does? A fast session that computes something else is no measurement.

A shared engine of another block, a scale that was ignored or TF32 in place of fp32 show in the output and nowhere else.
8-bit graphs are compared with their emulation in float: integer kernels of some processors saturate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.providers import CPU, Precision

# root mean square of the difference, over that of the CPU's output. fp32 in another order of summation differs by
# 1e-6, TF32 by 5e-4 a layer; fp16 by 5e-4 a layer. bf16 has 8 bits where fp16 has 11, so 8 times as much: OpenVINO was
# 0.006 to 0.08 off in whole networks. 8 bits: providers that round elsewhere were 0.02 to 0.17 off in whole networks,
# one that ignored a scale 0.33 and more
TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 3e-2, "bf16": 8 * 3e-2, "int8": 0.25}


_SATURATES = (
    "processors without VNNI saturate with 8-bit weights: `quantization: {weight_bits: 7}` in the device file; else "
    "its latency would be that of another network"
)


def require_agreement(
    found: dict[str, np.ndarray], fed: dict[str, np.ndarray], model: Path, device: Device, whole: bool = False
) -> None:
    """Raise unless the outputs that a session of the device found are those of the CPU provider.

    `whole`: of a whole network, in which bf16 has to show. Parts without a product stay in fp32.
    """
    precision = precision_of(model)
    if precision == "fp32" and device.precision == "bf16":
        precision = "bf16"
    expected = cpu_outputs(model, fed, emulated=precision == "int8")
    for name, value in found.items():
        off = difference(value, expected[name])
        if not off <= TOLERANCE[precision]:  # NaN is not
            raise DeployNASError(
                f"`{device.provider_name}` computes something else than the CPU: output `{name}` is off by {off:.2g} "
                f"of its size, at most {TOLERANCE[precision]:g} is rounding in {precision}",
                hint=_SATURATES if precision == "int8" else "its latency would be that of another network",
            )
        if whole and precision == "bf16":
            require_bf16(value, expected[name], device)


def require_bf16(found: np.ndarray, expected: np.ndarray, device: Device) -> None:
    """Raise if a whole network was computed in fp32 all the same: providers do that where the hardware has no bf16."""
    off = difference(found, expected)
    if off <= TOLERANCE["fp32"]:
        raise DeployNASError(
            f"`{device.provider_name}` is told to compute in bf16 and computes in fp32 here: its output is off by "
            f"{off:.2g} of its size, which is rounding in fp32",
            hint="hardware, driver or runtime without bf16; `precision: fp32`",
        )


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square, relative to what was expected; 0 or infinite where there is nothing to be relative to."""
    found, expected = (np.asarray(one, np.float64) for one in (found, expected))
    if found.shape != expected.shape:
        return float("inf")
    off, size = (float(np.sqrt(np.mean(one**2))) if one.size else 0.0 for one in (found - expected, expected))
    if off == 0:
        return 0.0
    return off / size if size else float("inf")


def cpu_outputs(model: Path, fed: dict[str, np.ndarray], emulated: bool = False) -> dict[str, np.ndarray]:
    """What the CPU provider makes of the same inputs. `emulated`: with every operator in float, as the file says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if emulated:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session: Any = onnxruntime.InferenceSession(str(model), options, providers=[CPU])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, fed), strict=True))


def precision_of(model: Path) -> Precision:
    """The coarsest that a file computes in, whatever a device calls it."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear") for node in graph.node):
        return "int8"
    types = {tensor.data_type for tensor in graph.initializer}
    return "fp16" if types & {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16} else "fp32"
