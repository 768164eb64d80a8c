"""One network as one ONNX file, in fp32 or in 8 bits: written by `graph/`, verified before anyone gets to see it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from deploynas import graph
from deploynas.errors import GateError
from deploynas.export.calibration import Calibration, activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.export.metadata import Metadata
from deploynas.export.verification import ImageStream, Verification, check, onnx_accuracy, verify
from deploynas.graph import OPSET
from deploynas.space import Architecture


@dataclass(frozen=True)
class Fp32File:
    content: bytes
    verification: Verification


@dataclass(frozen=True)
class Int8File:
    content: bytes
    calibration: Calibration
    calibration_images: int
    accuracy: float
    accuracy_drop: float  # below the fp32 file, on the same images


def fp32_file(
    model: nn.Module, architecture: Architecture, metadata: Metadata, validation: ImageStream, opset: int = OPSET
) -> Fp32File:
    """The network with batch norm folded and a free batch size; raises unless it computes what torch does."""
    parts = architecture.space.parts(architecture)
    about = {**graph.network_metadata(architecture.space, architecture), **metadata.props("fp32")}
    written = graph.chain(parts, folded_weights(model, parts), graph.Form(None, opset=opset), about)
    content = written.SerializeToString()
    return Fp32File(content, verify(model, content, validation))


def int8_file(
    model: nn.Module,
    architecture: Architecture,
    metadata: Metadata,
    fp32: Fp32File,
    validation: ImageStream,
    calibration_images: ImageStream,
    calibration: Calibration,
    max_accuracy_drop: float,
    opset: int = OPSET,
) -> Int8File:
    """The same in 8 bits; raises `GateError` if it loses more accuracy than allowed."""
    parts = architecture.space.parts(architecture)
    weights = folded_weights(model, parts)
    plain = graph.chain(parts, weights, graph.Form(None, opset=opset))
    ranges = activation_ranges(plain, calibration_images, calibration.method)
    form = graph.Form(None, "int8", opset, ranges, calibration.per_channel)
    about = {
        **graph.network_metadata(architecture.space, architecture),
        **metadata.props("int8", calibration=vars(calibration)),
    }
    written = graph.chain(parts, weights, form, about)
    content = written.SerializeToString()
    check(content)
    accuracy = onnx_accuracy(content, validation)
    drop = fp32.verification.onnx_accuracy - accuracy
    if drop > max_accuracy_drop:
        raise GateError(
            f"in 8 bits the network loses {100 * drop:.2f} points of accuracy ({100 * accuracy:.2f} %), "
            f"more than the {100 * max_accuracy_drop:g} that are allowed",
            hint="another --calibration-method, a larger --calibration-share, or --max-accuracy-drop",
        )
    return Int8File(content, calibration, sum(len(y) for _, y in calibration_images()), accuracy, drop)
