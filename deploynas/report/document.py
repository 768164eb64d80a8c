"""`report.json`: everything a report shows, as data. HTML, Markdown and the model card are views of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from deploynas.device import RecordedDevice
from deploynas.files import parse_json, write_json
from deploynas.inside_path import InsidePath
from deploynas.outcome import Outcome
from deploynas.provenance import DataRecord, Origin
from deploynas.providers import Precision
from deploynas.recorded import Count, Finite, Fraction, NotNegative, Positive, Uncertainty
from deploynas.report.gain import GainRecord
from deploynas.report.mixed_precision import MixedPrecisionRecord
from deploynas.report.numbers import NOTHING
from deploynas.report.verdict import VerdictRecord
from deploynas.timing import Timing

if TYPE_CHECKING:
    from typing_extensions import Self

FILE = "report.json"


def _known_precision(text: str) -> str:
    if text not in get_args(Precision):
        raise ValueError(f"be one of {', '.join(get_args(Precision))}")
    return text


KnownPrecision = Annotated[str, AfterValidator(_known_precision)]


class ShippedFile(BaseModel):
    """One ONNX file, verified and timed whole."""

    path: InsidePath
    precision: KnownPrecision
    size_bytes: Count
    accuracy: Fraction | None  # fine-tuned, of the validation images; None: untrained
    latency_ms: Positive
    relative_error: Uncertainty  # half-width of the 95 % interval, over the latency
    stable: bool
    disturbance: Positive = 1.0  # how many times slower than undisturbed the machine was
    percentiles_ms: dict[str, Positive]  # as it was
    throughput_per_s: Positive  # from the mean; in reports of earlier versions from the median
    timing: Timing | None = None  # both latencies, and what loading takes; None in reports of earlier versions


class BlockReport(BaseModel):
    """A part of the network: what it is, what the table says it costs, what the profiler saw."""

    name: str
    kind: str  # stem, first, block or head
    text: str  # its configuration, for people
    in_channels: Count
    out_channels: Count
    stride: Count
    height: Count  # of its input
    width: Count
    params: Count
    macs: Count
    predicted_ms: NotNegative | None  # None for fixed parts: the table knows their sum only
    measured_ms: NotNegative | None  # its share of the measured whole; in earlier versions, of the profiled run
    share: NotNegative | None


class Point(BaseModel):
    """A network in the plane of accuracy and latency."""

    latency_ms: Positive
    accuracy: Finite
    architecture: str


class ExpectedBlock(BaseModel):
    """A part of a network that the table knows. Fixed parts have no entry of their own there."""

    name: str
    text: str  # its configuration, for people
    shape: str  # "16→24 @ 14×14": channels in and out, size of its input
    predicted_ms: NotNegative | None


class ExpectedNetwork(Point):
    """What table and estimator expect of a network: latency, and one-shot accuracy."""

    interval: tuple[float, float] | None = None  # of the accuracy, 90 %
    params: Count | None = None  # None, and no blocks, in reports of earlier versions
    macs: Count | None = None
    fixed_ms: NotNegative | None = None  # of all fixed parts together
    blocks: list[ExpectedBlock] = []


class MeasuredPoint(Point):
    """Measured on the device and on the validation set, with the weights that it inherits from the supernet.

    Its latency is on the scale of the shipped file: see `joint_scale`.
    """

    predicted_ms: NotNegative
    predicted_accuracy: Finite
    shipped: bool = False  # it is the network of the report


class PredictedMeasured(BaseModel):
    predicted_ms: NotNegative
    measured_ms: Positive


class Round(BaseModel):
    """One try at the budget."""

    target_ms: Positive
    predicted_ms: NotNegative | None
    measured_ms: Positive  # of the kind that the budget is about
    architecture: str
    exported: bool | None = None  # as a file; False: measured before it had weights; None in earlier versions


class Wait(BaseModel):
    """A measurement of the shipped file that was made again, since the machine was busy."""

    undisturbed_ms: Positive
    p50_ms: Positive
    disturbance: Positive  # how many times slower than undisturbed the machine was


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

    images: Count
    max_difference: NotNegative  # of a logit
    largest_logit: NotNegative
    same_class: Fraction
    accuracy: Fraction
    emulated_accuracy: Fraction


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
    budget_ms: Positive | None
    gated: KnownPrecision  # the precision of the file to deploy, which the budget is for
    params: Count
    macs: Count
    peak_memory_bytes: Count
    predicted_ms: NotNegative | None  # of the file in the device's precision, as tables are
    table_error: NotNegative | None  # mean relative error of the table on whole networks
    predicted_accuracy: float | None  # one-shot, as that of every network of the frontier
    predicted_accuracy_se: float | None
    inherited_accuracy: Fraction | None  # one-shot, measured
    test_accuracy: Fraction | None  # fine-tuned
    files: Annotated[list[ShippedFile], Field(min_length=1)]
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
    joint_scale: Positive | None = None  # what latencies of networks that were timed together are multiplied by
    untrained: bool = False  # its weights are random: there is no accuracy
    profiler_slowdown: NotNegative | None = None  # by what factor the runtime's profiler made the shipped file slower

    @model_validator(mode="after")
    def _has_the_file_that_it_is_about(self) -> Self:
        if self.gated not in [file.precision for file in self.files]:
            raise ValueError(f"have a file in the precision to deploy, `{self.gated}`")
        return self

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
