"""Do the integer kernels of this processor sum what 8-bit graphs say?

On x86 without VNNI, ONNX Runtime multiplies unsigned by signed bytes with an instruction that adds two products in 16
bits and saturates: the sum of 2 * 255 * 127 is cut off at 32,767. One convolution of largest inputs and weights tells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np

from deploynas.blocks.operators import Tensor
from deploynas.graph import INPUT, OPSET, OUTPUT
from deploynas.graph.quantized import QuantizedWriter
from deploynas.providers import CPU

IntegerSums = Literal["exact", "saturating"]
CHANNELS = 16


@lru_cache(maxsize=1)
def integer_sums() -> IntegerSums:
    """Of the CPU provider here."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(probe(), options, providers=[CPU])
    found = session.run(None, {INPUT: np.ones((1, CHANNELS, 4, 4), np.float32)})[0]
    return "exact" if np.allclose(found, CHANNELS, rtol=0.01) else "saturating"


def probe() -> bytes:
    """A model that sums as many ones as it has channels."""
    ranges = {INPUT: (0.0, 1.0), "sum": (0.0, float(CHANNELS))}
    writer = QuantizedWriter(lambda name, shape: np.ones(shape, np.float32), ranges)
    x = Tensor(INPUT, CHANNELS, 4, 4)
    y = writer.finish(writer.conv("sum", x, CHANNELS, bias=False), OUTPUT)
    return writer.model(x, y, 1, OPSET, {})
