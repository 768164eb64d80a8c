"""One network as ONNX files in 8 bits, of which parts may stay in float: written, and judged beside the fp32 file.

What all of them share is made once: folded weights and the ranges of activations. What a file computes is taken from
the integer kernels where the device runs it as the CPU here does, and they are compared with the emulation.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from deploynas import graph
from deploynas.export.accuracy_drop import AccuracyDrop
from deploynas.export.calibration import Calibration, activation_ranges
from deploynas.export.corrections import ChannelStatistics, equalised, with_corrected_biases
from deploynas.export.fold import folded_weights
from deploynas.export.kernel_check import KernelCheck, check_kernels
from deploynas.export.metadata import Processor
from deploynas.export.network_file import Fp32File, TorchNetwork
from deploynas.export.verification import ImageStream, Judged, check, judged
from deploynas.latency.every_value import Ranges
from deploynas.quantization import FOR_CPUS, Quantization
from deploynas.supernet.trained_quantization import QuantizedTuningRecord, TrainedQuantization


@dataclass(frozen=True)
class Int8Wishes:
    """How 8 bits are made."""

    calibration: Calibration
    images: ImageStream  # that ranges of activations come from
    quantization: Quantization = FOR_CPUS  # the device's
    on_cpu: bool = True  # the device runs it as the CPU here does; else it is judged by what the graph says
    processor: Processor = field(default_factory=Processor)  # the device's
    trained: TrainedQuantization | None = None  # taken instead of what calibration finds, where it fits

    def settled(self) -> Int8Wishes:
        """A scale for each channel of a weight where both want it; then both say what is written."""
        both = self.calibration.per_channel and self.quantization.per_channel
        return replace(
            self,
            calibration=replace(self.calibration, per_channel=both),
            quantization=self.quantization.model_copy(update={"per_channel": both}),
        )


@dataclass(frozen=True)
class Int8File:
    content: bytes
    lost: AccuracyDrop
    calibration: Calibration
    quantization: Quantization
    processor: Processor
    calibration_images: int
    kernels: KernelCheck | None  # None: other kernels than those of the CPU here run it
    in_float: tuple[str, ...] = ()  # names of the parts that are not in 8 bits
    trained: QuantizedTuningRecord | None = None  # its weights and ranges were trained in 8 bits
    not_trained: str | None = None  # why weights that were trained in 8 bits are not those of this file

    @property
    def accuracy(self) -> float:
        return self.lost.accuracy


@dataclass(frozen=True)
class IntegerSource:
    """What the 8-bit files of a network are written from."""

    network: TorchNetwork
    how: Int8Wishes
    float_weights: dict[str, np.ndarray]
    even_weights: dict[str, np.ndarray]  # the same network, with channels that suit 8 bits better
    ranges: Ranges
    statistics: ChannelStatistics | None  # None: biases are not corrected

    @classmethod
    def of(cls, network: TorchNetwork, how: Int8Wishes) -> IntegerSource:
        how, parts = how.settled(), network.parts
        calibration, images = how.calibration, how.images
        weights = even = folded_weights(network.model, parts)
        plain = graph.chain(parts, weights, graph.Form(None, opset=network.opset))
        if calibration.equalise and calibration.per_channel:
            even = equalised(plain, weights, ChannelStatistics.of(plain, images).largest)
            plain = graph.chain(parts, even, graph.Form(None, opset=network.opset))
        statistics = ChannelStatistics.of(plain, images) if calibration.correct_biases else None
        return cls(network, how, weights, even, activation_ranges(plain, images, calibration.method), statistics)

    @property
    def not_trained(self) -> str | None:
        """Why weights that were trained in 8 bits are left out; None: there are none, or they are taken."""
        return self.how.trained.why_not(self.how.quantization) if self.how.trained else None

    @property
    def trained(self) -> TrainedQuantization | None:
        """Weights and ranges that were trained for these integers."""
        return None if self.not_trained else self.how.trained

    @cached_property
    def integer_weights(self) -> dict[str, np.ndarray]:
        if self.statistics is None:
            return self.even_weights
        plain = graph.chain(self.network.parts, self.even_weights, graph.Form(None, opset=self.network.opset))
        return with_corrected_biases(plain, self.even_weights, self.statistics.mean, self.how.quantization)

    def with_types(self, types: Quantization) -> IntegerSource:
        """For other integers; which scales weights have is settled."""
        types = types.model_copy(update={"per_channel": self.how.quantization.per_channel})
        return replace(self, how=replace(self.how, quantization=types))

    def content(self, in_float: Collection[str] = ()) -> bytes:
        """The file with these parts in float."""
        network, how, trained = self.network, self.how, self.trained
        form = graph.Form(
            None,
            "int8",
            network.opset,
            trained.ranges if trained else self.ranges,
            how.quantization,
            network.forms_in("int8"),
            frozenset(in_float),
            network.forms_in("fp32"),
        )
        about = {
            **network.about("mixed" if in_float else "int8", None if trained else how.calibration),
            "quantization": how.quantization.model_dump_json(),
            "integers": how.processor.model_copy(
                update={"any_processor": how.quantization.sums_exactly}
            ).model_dump_json(),
            **({"in_float": json.dumps(sorted(in_float))} if in_float else {}),
            **({"trained_int8": trained.about.model_dump_json(exclude={"fingerprint"})} if trained else {}),
        }
        if trained:  # in all parts: they have learned to work together
            return graph.chain(network.parts, trained.weights, form, about).SerializeToString()
        left = tuple(f"{name}/" for name in in_float)
        weights = self.integer_weights | {k: v for k, v in self.float_weights.items() if k.startswith(left)}
        return graph.chain(network.parts, weights, form, about).SerializeToString()

    def judged(self, content: bytes, images: ImageStream) -> Judged:
        """What the device makes of images."""
        return judged(content, images, as_written=not self.how.on_cpu)

    def file(self, fp32: Fp32File, validation: ImageStream, in_float: Collection[str] = ()) -> Int8File:
        """Written, checked and judged beside the fp32 file."""
        content, how = self.content(in_float), self.how
        check(content)
        found = self.judged(content, validation)
        return Int8File(
            content,
            AccuracyDrop.between(fp32.verification.correct, found.correct),
            how.calibration,
            how.quantization,
            how.processor,
            0 if self.trained else sum(len(y) for _, y in how.images()),
            check_kernels(content, validation, found) if how.on_cpu else None,
            tuple(name for name, _ in self.network.parts if name in set(in_float)),
            self.trained.about if self.trained else None,
            self.not_trained,
        )


def int8_file(network: TorchNetwork, fp32: Fp32File, validation: ImageStream, how: Int8Wishes) -> Int8File:
    """The network in 8 bits."""
    return IntegerSource.of(network, how).file(fp32, validation)
