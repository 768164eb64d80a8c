"""One network as one ONNX file, in fp32 or in 8 bits: written by `graph/`, verified before anyone gets to see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from deploynas import graph
from deploynas.errors import GateError
from deploynas.export.calibration import Calibration, activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.export.metadata import Metadata
from deploynas.export.verification import ImageStream, Verification, check, onnx_accuracy, verify
from deploynas.graph import DEFAULT_FORMS, OPSET, OperatorForms
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


@dataclass(frozen=True)
class TorchNetwork:
    """What is exported: a timm model, which network of the space it is, and what its files say about themselves."""

    model: nn.Module
    architecture: Architecture
    metadata: Metadata
    opset: int = OPSET
    # by precision, where a device chose them: what is fast in fp32 may be slow in 8 bits
    forms: Mapping[str, OperatorForms] = field(default_factory=dict)

    def forms_in(self, precision: str) -> OperatorForms:
        return self.forms.get(precision, DEFAULT_FORMS)

    def about(self, precision: str, calibration: Calibration | None = None) -> dict[str, str]:
        """What the file says about itself."""
        return {
            **graph.network_metadata(self.architecture.space, self.architecture),
            **self.metadata.props(precision, calibration),
            "forms": self.forms_in(precision).model_dump_json(),
        }


@dataclass(frozen=True)
class Quantisation:
    """How 8 bits are made, and what they may cost."""

    calibration: Calibration
    images: ImageStream  # that ranges of activations come from
    max_accuracy_drop: float = 0.01


def fp32_file(network: TorchNetwork, validation: ImageStream) -> Fp32File:
    """The network with batch norm folded and a free batch size; raises unless it computes what torch does."""
    architecture = network.architecture
    parts = architecture.space.parts(architecture)
    form = graph.Form(None, opset=network.opset, operators=network.forms_in("fp32"))
    written = graph.chain(parts, folded_weights(network.model, parts), form, network.about("fp32"))
    content = written.SerializeToString()
    return Fp32File(content, verify(network.model, content, validation))


def int8_file(network: TorchNetwork, fp32: Fp32File, validation: ImageStream, how: Quantisation) -> Int8File:
    """The same in 8 bits; raises `GateError` if it loses more accuracy than allowed."""
    architecture, calibration = network.architecture, how.calibration
    parts = architecture.space.parts(architecture)
    weights = folded_weights(network.model, parts)
    plain = graph.chain(parts, weights, graph.Form(None, opset=network.opset))
    ranges = activation_ranges(plain, how.images, calibration.method)
    form = graph.Form(None, "int8", network.opset, ranges, calibration.per_channel, network.forms_in("int8"))
    written = graph.chain(parts, weights, form, network.about("int8", calibration))
    content = written.SerializeToString()
    check(content)
    accuracy = onnx_accuracy(content, validation)
    drop = fp32.verification.onnx_accuracy - accuracy
    if drop > how.max_accuracy_drop:
        raise GateError(
            f"in 8 bits the network loses {100 * drop:.2f} points of accuracy ({100 * accuracy:.2f} %), "
            f"more than the {100 * how.max_accuracy_drop:g} that are allowed",
            hint="another --calibration-method, a larger --calibration-share, or --max-accuracy-drop",
        )
    return Int8File(content, calibration, sum(len(y) for _, y in how.images()), accuracy, drop)
