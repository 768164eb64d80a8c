"""A network in 8 bits for one device: in types whose sums its kernels get right, in all parts or in those that pay."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploynas.device import Device
from deploynas.export.calibration import Calibration
from deploynas.export.integer_file import Int8File, Int8Wishes, IntegerSource
from deploynas.export.metadata import Processor
from deploynas.export.network_file import Fp32File, TorchNetwork
from deploynas.export.verification import ImageStream
from deploynas.latency.bench import Case, bench_together
from deploynas.latency.target import target_of
from deploynas.latency.weight_types import weight_types
from deploynas.pipeline.mixed_precision import MixedGoal, MixedSearch
from deploynas.progress import OnProgress, silent
from deploynas.providers import CPU
from deploynas.report.mixed_precision import MixedPrecisionRecord
from deploynas.supernet.trained_quantization import TrainedQuantization


@dataclass(frozen=True)
class EightBits:
    network: TorchNetwork
    fp32: Fp32File
    calibration_images: ImageStream
    validation: ImageStream
    calibration: Calibration
    device: Device
    max_accuracy_drop: float
    trained: TrainedQuantization | None = None  # weights and ranges that lie beside the network

    def whole(self) -> Int8File:
        """All parts."""
        return self._source_and_file()[1]

    def mixed(
        self, budget_ms: float | None, on_progress: OnProgress = silent
    ) -> tuple[Int8File | None, MixedPrecisionRecord]:
        """The parts that pay; no file if those are none."""
        source, everything = self._source_and_file()
        goal = MixedGoal(self.max_accuracy_drop, budget_ms)
        images = self.calibration_images, self.validation
        found = MixedSearch(source, self.device, *images, self.fp32.content, goal).choose(on_progress)
        if len(found.in_float) == len(source.network.parts):
            return None, found.record
        if not found.in_float:
            return everything, found.record
        return source.file(self.fp32, self.validation, found.in_float), found.record

    def _source_and_file(self) -> tuple[IntegerSource, Int8File]:
        device = self.device
        facts = target_of(device).facts()
        types = weight_types(device, facts)
        processor = Processor(
            machine=facts.hardware.machine,
            instruction_sets=facts.hardware.instruction_sets,
            sums=facts.integer_sums or "",
        )
        here = device.provider_name == CPU and device.host is None
        how = Int8Wishes(self.calibration, self.calibration_images, types[0], here, processor, self.trained)
        source = IntegerSource.of(self.network, how)
        sources = [source.with_types(one) for one in types]
        files = [one.file(self.fp32, self.validation) for one in sources]
        if len(files) == 1:
            return sources[0], files[0]
        accurate = [i for i, file in enumerate(files) if file.lost.drop <= self.max_accuracy_drop] or [0]
        best = accurate[_fastest([files[i].content for i in accurate], device)]
        return sources[best], files[best]


def _fastest(contents: Sequence[bytes], device: Device) -> int:
    """The first, unless another is faster for certain."""
    if len(contents) == 1:
        return 0
    with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
        paths = [Path(folder) / f"{i}.onnx" for i in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        ratios = bench_together([Case(path) for path in paths], device).ratios
    faster = {i: ratio.faster for i, ratio in enumerate(ratios, 1) if ratio.verdict == "faster"}
    return max(faster, key=faster.__getitem__, default=0)
