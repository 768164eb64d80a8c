"""`report.json`: everything a report shows, as data. HTML, Markdown and the model card are views of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from deploynas.device import RecordedDevice
from deploynas.files import parse_json, write_json
from deploynas.outcome import Outcome
from deploynas.provenance import DataRecord, Origin
from deploynas.report.gain import GainRecord
from deploynas.report.mixed_precision import MixedPrecisionRecord
from deploynas.report.numbers import NOTHING
from deploynas.report.verdict import VerdictRecord
from deploynas.timing import Timing

FILE = "report.json"


class ShippedFile(BaseModel):
    """One ONNX file, verified and timed whole."""

    path: str
    precision: str
    size_bytes: int
    accuracy: float | None  # fine-tuned, of the validation images; None: untrained
    latency_ms: float
    relative_error: float  # half-width of the 95 % interval, over the latency
    stable: bool
    disturbance: float = 1.0  # how many times slower than undisturbed the machine was
    percentiles_ms: dict[str, float]  # as it was
    throughput_per_s: float  # from the mean; in reports of earlier versions from the median
    timing: Timing | None = None  # both latencies, and what loading takes; None in reports of earlier versions


class BlockReport(BaseModel):
    """A part of the network: what it is, what the table says it costs, what the profiler saw."""

    name: str
    kind: str  # stem, first, block or head
    text: str  # its configuration, for people
    in_channels: int
    out_channels: int
    stride: int
    height: int  # of its input
    width: int
    params: int
    macs: int
    predicted_ms: float | None  # None for fixed parts: the table knows their sum only
    measured_ms: float | None  # its share of the measured whole; in earlier versions, of the profiled run
    share: float | None


class Point(BaseModel):
    """A network in the plane of accuracy and latency."""

    latency_ms: float
    accuracy: float
    architecture: str


class ExpectedBlock(BaseModel):
    """A part of a network that the table knows. Fixed parts have no entry of their own there."""

    name: str
    text: str  # its configuration, for people
    shape: str  # "16→24 @ 14×14": channels in and out, size of its input
    predicted_ms: float | None


class ExpectedNetwork(Point):
    """What table and estimator expect of a network: latency, and one-shot accuracy."""

    interval: tuple[float, float] | None = None  # of the accuracy, 90 %
    params: int | None = None  # None, and no blocks, in reports of earlier versions
    macs: int | None = None
    fixed_ms: float | None = None  # of all fixed parts together
    blocks: list[ExpectedBlock] = []


class MeasuredPoint(Point):
    """Measured on the device and on the validation set, with the weights that it inherits from the supernet.

    Its latency is on the scale of the shipped file: see `joint_scale`.
    """

    predicted_ms: float
    predicted_accuracy: float
    shipped: bool = False  # it is the network of the report


class PredictedMeasured(BaseModel):
    predicted_ms: float
    measured_ms: float


class Round(BaseModel):
    """One try at the budget."""

    target_ms: float
    predicted_ms: float | None
    measured_ms: float  # of the kind that the budget is about
    architecture: str
    exported: bool | None = None  # as a file; False: measured before it had weights; None in earlier versions


class Wait(BaseModel):
    """A measurement of the shipped file that was made again, since the machine was busy."""

    undisturbed_ms: float
    p50_ms: float
    disturbance: float  # how many times slower than undisturbed the machine was


class ChangeWorth(BaseModel):
    """What changing one thing is worth in one-shot accuracy, and what it costs."""

    name: str
    accuracy: float
    accuracy_se: float | None = None
    latency_ms: float | None = None


class HardwareRecord(BaseModel):
    """The machine that was measured on, as far as a report shows it."""

    processor: str = "unknown processor"
    cores: int = 1
    machine: str = ""
    memory_gib: int | None = None
    system: str = ""
    accelerators: list[str] = []
    fingerprint: str = ""


class VerificationRecord(BaseModel):
    """How far torch and the ONNX file were apart."""

    batches: list[int] = []
    tolerance: float
    max_difference: float
    images: int
    torch_accuracy: float | None = None
    onnx_accuracy: float | None = None
    ties: int = 0


class KernelRecord(BaseModel):
    """What the integer kernels of the machine make of the 8-bit file, beside its emulation in float."""

    images: int
    max_difference: float  # of a logit
    largest_logit: float
    same_class: float
    accuracy: float
    emulated_accuracy: float


class CalibrationRecord(BaseModel):
    """How the ranges of the 8-bit file were chosen, and what 8 bits cost."""

    method: str  # `trained`: they and the weights were trained in 8 bits, and nothing was calibrated for this file
    share: float | None = None
    per_channel: bool
    images: int
    accuracy_drop: float | None = None
    not_trained: str | None = None  # why weights that were trained in 8 bits are not those of this file
    # in reports of earlier versions these are not known
    weight_bits: int | None = None
    weights: str | None = None  # `int8` or `uint8`
    instruction_sets: list[str] = []  # that it was verified on
    integer_sums: str = ""  # there: `exact` or `saturating`
    any_processor: bool | None = None  # whether integer kernels of other processors compute the same
    kernels: KernelRecord | None = None  # None: its integers are not computed by the CPU of the machine that exports


class EstimatorTrust(BaseModel):
    """How well the estimator ranked networks that it had not seen; what else was validated is kept."""

    model_config = ConfigDict(extra="allow")

    networks: int
    kendall_tau: float | None = None


class ReportFile(BaseModel):
    schema_: Literal["deploynas/report"] = Field(default="deploynas/report", alias="schema")
    schema_version: int = 1
    title: str
    created: str
    space: str
    space_size: str  # too large for a float
    device: RecordedDevice
    hardware: HardwareRecord
    data: DataRecord
    architecture: str
    choices: list[list[int]]
    budget_ms: float | None
    gated: str  # the precision of the file to deploy, which the budget is for
    params: int
    macs: int
    peak_memory_bytes: int
    predicted_ms: float | None  # of the file in the device's precision, as tables are
    table_error: float | None  # mean relative error of the table on whole networks
    predicted_accuracy: float | None  # one-shot, as that of every network of the frontier
    predicted_accuracy_se: float | None
    inherited_accuracy: float | None  # one-shot, measured
    test_accuracy: float | None  # fine-tuned
    files: list[ShippedFile]
    blocks: list[BlockReport]
    gain: GainRecord | None = None  # None: there was no supernet to compare other networks of
    expected: ExpectedNetwork | None = None  # of the shipped network
    frontier: list[ExpectedNetwork] = []
    measured: list[MeasuredPoint] = []
    table_networks: list[PredictedMeasured] = []
    rounds: list[Round] = []
    verification: VerificationRecord
    calibration: CalibrationRecord | None = None
    assignments: MixedPrecisionRecord | None = None  # which parts are in 8 bits, where that was searched for
    verdicts: list[VerdictRecord] = []  # of files with fewer bits than fp32, shipped or not
    changes: list[ChangeWorth] = []  # of the shipped network, one at a time
    decisions: list[ChangeWorth] = []  # on average over networks; in reports of earlier versions
    estimator_validation: EstimatorTrust | None = None
    lineage: dict[str, Origin | None] = {}
    versions: dict[str, str] = {}
    warnings: list[str] = []
    outcome: Outcome | None = None  # of the budget; None without one, and in reports of earlier versions
    waits: list[Wait] = []  # for a quieter moment, before the measurement that counts
    joint_scale: float | None = None  # what latencies of networks that were timed together are multiplied by
    untrained: bool = False  # its weights are random: there is no accuracy
    profiler_slowdown: float | None = None  # by what factor the runtime's profiler made the shipped file slower

    @classmethod
    def load(cls, path: str | Path) -> ReportFile:
        """From the file, or from the bundle that it lies in."""
        path = Path(path)
        return parse_json(path / FILE if path.is_dir() else path, cls)

    def save(self, path: Path) -> None:
        write_json(path, self.model_dump(by_alias=True, mode="json"))

    @property
    def shipped(self) -> ShippedFile:
        """The file that the budget is for."""
        return next(file for file in self.files if file.precision == self.gated)

    @property
    def image_size(self) -> str:
        """Of the input: "28×28"."""
        return f"{self.blocks[0].height}×{self.blocks[0].width}" if self.blocks else NOTHING

    @property
    def predicted_file(self) -> ShippedFile:
        """The file that tables of the device are about, and so what is predicted, and what is timed beside it."""
        return next((file for file in self.files if file.precision == self.device.precision), self.shipped)

    @property
    def predicted_of_shipped(self) -> float | None:
        """What the table says of the file to deploy; None where that is in another precision than tables are."""
        return self.predicted_ms if self.predicted_file is self.shipped else None

    @property
    def prediction_error(self) -> float | None:
        """Predicted over measured, minus one."""
        return None if self.predicted_ms is None else self.predicted_ms / self.predicted_file.latency_ms - 1
