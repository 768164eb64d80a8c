"""Every intermediate value of a float graph, as the CPU computes it: what ranges of 8-bit values come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from deploynas.graph import INPUT
from deploynas.providers import CPU

Ranges = dict[str, tuple[float, float]]


def every_value(fp32: onnx.ModelProto) -> tuple[Any, list[str]]:
    """A session that hands out every intermediate value, and their names with the input's first."""
    import onnxruntime

    model = onnx.ModelProto()
    model.CopyFrom(fp32)
    known = {output.name for output in model.graph.output}
    for node in model.graph.node:
        if node.output[0] not in known:
            model.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[CPU])
    return session, [INPUT, *(output.name for output in model.graph.output)]


def ranges_of_one(fp32: onnx.ModelProto, x: np.ndarray) -> Ranges:
    """The extremes of every value for one input: enough for a graph that is only compared with itself."""
    session, names = every_value(fp32)
    values = zip(names, [x, *session.run(names[1:], {INPUT: x})], strict=True)
    ranges = {name: (min(0.0, float(value.min())), max(0.0, float(value.max()))) for name, value in values}
    # the last one is called like the output, and writers ask for it by the name of its node
    return {**ranges, **{node.name: ranges[node.output[0]] for node in fp32.graph.node}}
