"""One network as one ONNX file, in fp32, fp16 or 8 bits: written by `graph/`, verified before anyone gets to see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from torch import nn

from deploynas import graph
from deploynas.blocks import Part
from deploynas.errors import GateError
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.calibration import Calibration, activation_ranges
from deploynas.export.fold import folded_weights
from deploynas.export.metadata import Metadata
from deploynas.export.verification import ImageStream, Verification, check, correct_images, verify
from deploynas.graph import DEFAULT_FORMS, LARGEST_FLOAT16, OPSET, OperatorForms
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.space import Architecture
from deploynas.supernet.trained_quantization import QuantizedTuningRecord, TrainedQuantization


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
class Int8File:
    content: bytes
    lost: AccuracyDrop
    calibration: Calibration
    quantization: Quantization
    calibration_images: int  # none where nothing was calibrated
    trained: QuantizedTuningRecord | None = None  # its weights and ranges were trained in 8 bits
    not_trained: str | None = None  # why weights that were trained in 8 bits are not those of this file

    @property
    def accuracy(self) -> float:
        return self.lost.accuracy


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


@dataclass(frozen=True)
class Int8Wishes:
    """How 8 bits are made."""

    calibration: Calibration
    images: ImageStream  # that ranges of activations come from
    quantization: Quantization = FOR_CPUS  # the device's
    on_cpu: bool = True  # the device runs it as the CPU here does; else it is judged by what the graph says
    trained: TrainedQuantization | None = None  # taken instead of calibration, where it fits
    network_sha256: str = ""  # of the weights that it has to have started from

    def settled(self) -> Int8Wishes:
        """A scale for each channel of a weight where both want it; then both say what is written."""
        both = self.calibration.per_channel and self.quantization.per_channel
        return replace(
            self,
            calibration=replace(self.calibration, per_channel=both),
            quantization=self.quantization.model_copy(update={"per_channel": both}),
        )


def fp32_file(network: TorchNetwork, validation: ImageStream) -> Fp32File:
    """The network with batch norm folded and a free batch size; raises unless it computes what torch does."""
    parts = network.parts
    form = graph.Form(None, opset=network.opset, operators=network.forms_in("fp32"))
    written = graph.chain(parts, folded_weights(network.model, parts), form, network.about("fp32"))
    content = written.SerializeToString()
    return Fp32File(content, verify(network.model, content, validation))


def fp16_file(network: TorchNetwork, fp32: Fp32File, validation: ImageStream) -> Fp16File:
    """The same in float16; raises `GateError` if a value does not fit."""
    parts = network.parts
    form = graph.Form(None, "fp16", network.opset, operators=network.forms_in("fp16"))
    written = graph.chain(parts, folded_weights(network.model, parts), form, network.about("fp16"))
    content = written.SerializeToString()
    check(content)
    _require_in_float16(fp32, validation)
    return Fp16File(content, AccuracyDrop.between(fp32.verification.correct, correct_images(content, validation)))


def int8_file(network: TorchNetwork, fp32: Fp32File, validation: ImageStream, how: Int8Wishes) -> Int8File:
    """The same in 8 bits."""
    how, parts = how.settled(), network.parts
    calibration, quantization = how.calibration, how.quantization
    start = _int8_start(network, how)
    form = graph.Form(None, "int8", network.opset, start.ranges, quantization, network.forms_in("int8"))
    about = network.about("int8", None if start.trained else calibration)
    about |= {"quantization": quantization.model_dump_json(), **start.about()}
    content = graph.chain(parts, start.weights, form, about).SerializeToString()
    check(content)
    lost = AccuracyDrop.between(
        fp32.verification.correct, correct_images(content, validation, as_written=not how.on_cpu)
    )
    looked_at = 0 if start.trained else sum(len(y) for _, y in how.images())
    return Int8File(content, lost, calibration, quantization, looked_at, start.trained, start.not_trained)


@dataclass(frozen=True)
class _Int8Start:
    """What an 8-bit graph is written from."""

    weights: Mapping[str, np.ndarray]
    ranges: Mapping[str, tuple[float, float]]
    trained: QuantizedTuningRecord | None = None
    not_trained: str | None = None

    def about(self) -> dict[str, str]:
        return {"trained_int8": self.trained.model_dump_json(exclude={"fingerprint"})} if self.trained else {}


def _int8_start(network: TorchNetwork, how: Int8Wishes) -> _Int8Start:
    """Trained weights and ranges where they fit, else calibrated ones."""
    why_not = how.trained.why_not(how.network_sha256, how.quantization) if how.trained else None
    if how.trained and not why_not:
        return _Int8Start(how.trained.weights, how.trained.ranges, how.trained.about)
    weights = folded_weights(network.model, network.parts)
    plain = graph.chain(network.parts, weights, graph.Form(None, opset=network.opset))
    return _Int8Start(weights, activation_ranges(plain, how.images, how.calibration.method), not_trained=why_not)


def _require_in_float16(fp32: Fp32File, images: ImageStream) -> None:
    """Every value that the network takes; a runtime that computes in fp32 all the same would not notice."""
    extremes = activation_ranges(onnx.ModelProto.FromString(fp32.content), images, "minmax")
    largest, name = max((max(-low, high), name) for name, (low, high) in extremes.items())
    if largest > LARGEST_FLOAT16:
        raise GateError(
            f"`{name}` reaches {largest:.4g} on the validation images, more than fp16 can hold ({LARGEST_FLOAT16:g})",
            hint="`precision: fp32`",
        )
