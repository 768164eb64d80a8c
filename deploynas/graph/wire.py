"""A model as bytes, with its weights copied once.

Through the message classes weights are copied four times, and a worker that loads 50 networks would spend a quarter of
a profile on that. Protobuf merges what is repeated: a model, followed by the same fields again with nothing but
initialisers in its graph, is the model with initialisers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


def with_weights(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> bytes:
    """What `model.SerializeToString()` would be if its graph had these initialisers too."""
    pieces: list[bytes | memoryview] = []
    for name, value in weights.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        about = TensorProto(name=name, data_type=kind, dims=value.shape).SerializeToString()
        about += _header(_RAW_DATA, value.nbytes)
        pieces += [_header(_INITIALIZER, len(about) + value.nbytes) + about, _content(value)]
    length = sum(len(piece) for piece in pieces)
    return b"".join([model.SerializeToString(), _header(_GRAPH, length), *pieces])


def _content(value: np.ndarray) -> memoryview:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def _header(field: int, length: int) -> bytes:
    """Of a field whose length comes first."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
