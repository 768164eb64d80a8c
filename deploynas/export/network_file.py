"""One network as one ONNX file, in fp32 or fp16: written by `graph/`, verified before anyone gets to see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx
from torch import nn

from deploynas import graph
from deploynas.blocks import Part
from deploynas.errors import GateError
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.calibration import Calibration, value_extremes
from deploynas.export.fold import folded_weights
from deploynas.export.metadata import Metadata
from deploynas.export.verification import ImageStream, Judged, Verification, check, judged, verify
from deploynas.graph import DEFAULT_FORMS, LARGEST_FLOAT16, OPSET, OperatorForms
from deploynas.space import Architecture


@dataclass(frozen=True)
class Fp32File:
    content: bytes
    verification: Verification

    @property
    def accuracy(self) -> float:
        return self.verification.onnx_accuracy


@dataclass(frozen=True)
class Fp16File:
    content: bytes
    lost: AccuracyDrop

    @property
    def accuracy(self) -> float:
        return self.lost.accuracy


@dataclass(frozen=True)
class Bf16File:
    """The fp32 file, byte by byte, as a provider computes it that is told to do so in bf16."""

    content: bytes
    lost: AccuracyDrop | None  # None: nobody here can compute as the device does
    unjudged: str = ""  # why

    @property
    def accuracy(self) -> float | None:
        return self.lost.accuracy if self.lost else None


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

    @property
    def parts(self) -> list[tuple[str, Part]]:
        return self.architecture.space.parts(self.architecture)

    def about(self, precision: str, calibration: Calibration | None = None) -> dict[str, str]:
        """What the file says about itself."""
        return {
            **graph.network_metadata(self.architecture.space, self.architecture),
            **self.metadata.props(precision, calibration),
            "forms": self.forms_in(precision).model_dump_json(),
        }


def fp32_file(network: TorchNetwork, validation: ImageStream) -> Fp32File:
    """The network with batch norm folded and a free batch size; raises unless it computes what torch does."""
    parts = network.parts
    form = graph.Form(None, opset=network.opset, operators=network.forms_in("fp32"))
    written = graph.chain(parts, folded_weights(network.model, parts), form, network.about("fp32"))
    content = written.SerializeToString()
    return Fp32File(content, verify(network.model, content, validation))


def fp16_file(
    network: TorchNetwork,
    fp32: Fp32File,
    validation: ImageStream,
    judge: Callable[[bytes, ImageStream], Judged] = judged,
) -> Fp16File:
    """The same in float16; raises `GateError` if a value does not fit. `judge`: who classifies with it."""
    parts = network.parts
    form = graph.Form(None, "fp16", network.opset, operators=network.forms_in("fp16"))
    written = graph.chain(parts, folded_weights(network.model, parts), form, network.about("fp16"))
    content = written.SerializeToString()
    check(content)
    _require_in_float16(fp32, validation)
    return Fp16File(content, AccuracyDrop.between(fp32.verification.correct, judge(content, validation).correct))


def _require_in_float16(fp32: Fp32File, images: ImageStream) -> None:
    """Every value that the network takes; a runtime that computes in fp32 all the same would not notice."""
    extremes = value_extremes(onnx.ModelProto.FromString(fp32.content), images)
    largest, name = max((max(-low, high), name) for name, (low, high) in extremes.items())
    if largest > LARGEST_FLOAT16:
        raise GateError(
            f"`{name}` reaches {largest:.4g} on the validation images, more than fp16 can hold ({LARGEST_FLOAT16:g})",
            hint="`precision: fp32`",
        )
