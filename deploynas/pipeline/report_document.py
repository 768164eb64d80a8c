"""Gathers what a report shows: the shipped network block by block, the frontier around it, and reasons for doubt."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from deploynas.accuracy.changes import single_changes
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.costs import Costs
from deploynas.errors import InputError
from deploynas.export.budget import Attempt
from deploynas.files import now
from deploynas.latency.bench import BenchResult
from deploynas.latency.machine_changes import slowed_down
from deploynas.latency.measure import measure_networks
from deploynas.latency.table import LatencyTable
from deploynas.outcome import Outcome, outcome_of
from deploynas.pipeline.candidates import Candidates, round_of
from deploynas.pipeline.exported import MODEL, Exported, Wishes
from deploynas.pipeline.gain import Compared, MeasuredTogether, Rivals, fine_tuned_judgement, gain_record
from deploynas.pipeline.network_blocks import block_reports, expected_network
from deploynas.pipeline.sources import KnownTable
from deploynas.pipeline.supernet import TrainedSupernet
from deploynas.progress import OnProgress, silent
from deploynas.report.accuracy_words import UNTRAINED_MEANS
from deploynas.report.document import (
    CalibrationRecord,
    ChangeWorth,
    EstimatorTrust,
    ExpectedNetwork,
    HardwareRecord,
    KernelRecord,
    MeasuredPoint,
    PredictedMeasured,
    ReportFile,
    Round,
    ShippedFile,
    VerificationRecord,
    Wait,
)
from deploynas.report.gain import GainRecord, Judgement
from deploynas.report.numbers import how_many
from deploynas.search.frontier import Frontier, frontier
from deploynas.space import Architecture
from deploynas.space.coefficients import IndexedObjective, SeparableObjective
from deploynas.timing import Timing
from deploynas.training.batches import Batches

FRONTIER_POINTS = 80
GOOD_PREDICTION = 0.05  # what the prediction of a shipped network should be within


@dataclass(frozen=True)
class Shipment:
    """What is about to be shipped, and everything that was tried on the way."""

    candidates: Candidates
    budget_ms: float | None
    rounds: tuple[Attempt[Exported], ...]
    batches: Batches
    wishes: Wishes
    on_progress: OnProgress = silent

    @property
    def shipped(self) -> Exported:
        return self.rounds[-1].what

    @property
    def architecture(self) -> Architecture:
        return self.shipped.architecture


def report_document(shipment: Shipment) -> ReportFile:
    candidates, shipped, architecture = shipment.candidates, shipment.shipped, shipment.architecture
    space, device, known = candidates.space, candidates.device, candidates.table
    record, costs = shipped.record, Costs.of(space, architecture)
    table, estimator = known.table if known else None, candidates.estimator
    bench = shipped.timed.gated_bench
    # tables are of files in the device's precision: what they say of blocks is not about a file in another
    priced = table if shipped.timed.gated == device.precision else None
    points = _frontier(estimator, table)
    beside = _beside(shipment, points)
    expects = estimator is not None and estimator.scale == "accuracy"
    expectation = estimator.expect(architecture) if estimator and expects else None
    validation = estimator.validation if estimator else None
    report = ReportFile(
        title=f"{space.name} on {device.name}",
        created=now(),
        space=space.name,
        space_size=how_many(space.size()),
        device=device,
        hardware=HardwareRecord.model_validate(bench.provenance["hardware"]),
        data=shipment.batches.data.describe(),
        architecture=str(architecture),
        choices=[list(choice) for choice in architecture.choices],
        budget_ms=shipment.budget_ms,
        gated=shipped.timed.gated,
        params=costs.params,
        macs=costs.macs,
        peak_memory_bytes=costs.peak_memory_bytes,
        predicted_ms=table.predict(architecture) if table else None,
        table_error=table.mean_error if table else None,
        predicted_accuracy=expectation.accuracy if expectation else None,
        predicted_accuracy_se=expectation.se if expectation else None,
        inherited_accuracy=record.inherited_accuracy,
        test_accuracy=record.test_accuracy,
        files=_files(shipped),
        blocks=block_reports(architecture, priced, bench),
        gain=beside.gain,
        expected=expected_network(architecture, estimator, table) if estimator and expects and table else None,
        frontier=_points(points, estimator, table),
        measured=beside.points,
        table_networks=_table_networks(known),
        rounds=_rounds(shipment),
        verification=_verification(shipped),
        calibration=_calibration(shipped),
        assignments=shipped.files.assignments,
        verdicts=list(shipped.verdicts),
        changes=_changes(architecture, estimator, table),
        estimator_validation=EstimatorTrust.model_validate(validation.model_dump()) if validation else None,
        lineage=candidates.sources.lineage(shipped.network, record.lineage, known),
        versions={name: str(version) for name, version in bench.provenance["versions"].items()},
        outcome=_outcome(shipment),
        waits=[_wait(timing) for timing in (busier.timing for busier in shipped.waits) if timing],
        joint_scale=beside.scale,
        untrained=bool(record.untrained),
        profiler_slowdown=bench.profiler_slowdown,
    )
    busiest = max(bench.provenance["load_before"][0], bench.provenance["load_after"][0])
    return report.model_copy(update={"warnings": _warnings(report, bench, busiest)})


def _outcome(shipment: Shipment) -> Outcome | None:
    device, budget_ms = shipment.candidates.device, shipment.budget_ms
    return None if budget_ms is None else outcome_of(shipment.shipped.timed.timing, budget_ms, device.budget)


def _verification(shipped: Exported) -> VerificationRecord:
    found = VerificationRecord.model_validate(asdict(shipped.files.fp32.verification))
    if not shipped.record.untrained:
        return found
    return found.model_copy(update={"torch_accuracy": None, "onnx_accuracy": None})  # of random weights: chance


def _wait(timing: Timing) -> Wait:
    return Wait(
        undisturbed_ms=timing.undisturbed.latency_ms, p50_ms=timing.clock.p50_ms, disturbance=timing.disturbance
    )


def _files(shipped: Exported) -> list[ShippedFile]:
    files = shipped.files.by_precision()
    return [
        ShippedFile(
            path=MODEL[precision],
            precision=precision,
            size_bytes=len(files[precision].content),
            accuracy=None if shipped.record.untrained else files[precision].accuracy,
            latency_ms=result.measurement.latency_ms,
            relative_error=result.measurement.relative_error,
            stable=result.measurement.stable,
            disturbance=result.timing.disturbance if result.timing else result.measurement.disturbance,
            percentiles_ms=result.percentiles_ms,
            throughput_per_s=result.throughput_per_s,
            timing=result.timing,
        )
        for precision, result in shipped.benches.items()
    ]


def _frontier(estimator: StoredEstimator | None, table: LatencyTable | None) -> Frontier | None:
    """Every optimal network; None if that is not known."""
    if estimator is None or table is None:
        return None
    objective = estimator.objective()
    if not isinstance(objective, (SeparableObjective, IndexedObjective)) or objective.scale != "accuracy":
        return None
    return frontier(table.space, estimator, table)


def _points(
    points: Frontier | None, estimator: StoredEstimator | None, table: LatencyTable | None
) -> list[ExpectedNetwork]:
    if points is None or estimator is None or table is None:
        return []
    return [expected_network(point.architecture, estimator, table) for point in points.thin(FRONTIER_POINTS)]


@dataclass(frozen=True)
class Beside:
    """What was measured beside the shipped network, on the scale of its file."""

    gain: GainRecord | None = None
    points: list[MeasuredPoint] = field(default_factory=list)
    scale: float | None = None


def _beside(shipment: Shipment, points: Frontier | None) -> Beside:
    """The shipped network, its rivals and some networks of the frontier: timed together, judged one-shot."""
    candidates, wishes, architecture = shipment.candidates, shipment.wishes, shipment.architecture
    estimator, known, supernet = candidates.estimator, candidates.table, _supernet(candidates)
    if supernet is None:
        return Beside()
    table = known.table if known else None
    rivals = Rivals.of(architecture, estimator, table)
    some = points.thin(wishes.frontier_points) if points and wishes.frontier_points >= 2 else []
    networks = list(dict.fromkeys([architecture, *rivals.networks, *(point.architecture for point in some)]))
    shipment.on_progress(0.85, "measuring it beside other networks")
    timed = measure_networks(candidates.device, candidates.space, networks, forms=candidates.forms)
    # the shipped network is the first of them
    scale = shipment.shipped.benches[candidates.device.precision].measurement.latency_ms / timed[0].latency_ms
    measured = MeasuredTogether(dict(zip(networks, timed, strict=True)), supernet, scale)
    compared = Compared.of(architecture, rivals, measured)
    shipment.on_progress(0.9, "judging it beside other networks")
    gain = gain_record(compared, measured, table)
    if wishes.compare:
        few = compared.first(wishes.compare)
        gain = gain.model_copy(update={"fine_tuned": _fine_tuned(shipment, few, measured)})
    found = [
        MeasuredPoint(
            latency_ms=measured.latency_ms(point.architecture),
            accuracy=measured.accuracy(point.architecture),
            architecture=str(point.architecture),
            predicted_ms=point.latency_ms,
            predicted_accuracy=estimator.expect(point.architecture).accuracy,
            shipped=point.architecture == architecture,
        )
        for point in some
        if estimator is not None
    ]
    return Beside(gain, found, scale)


def _supernet(candidates: Candidates) -> TrainedSupernet | None:
    """None where it is not known, or was trained on other images than the network: then nothing is compared."""
    source = candidates.sources.supernet
    try:
        return source.open() if source else None
    except InputError:
        return None


def _fine_tuned(shipment: Shipment, compared: Compared, measured: MeasuredTogether) -> Judgement:
    """The shipped network is fine-tuned already."""

    def fine_tune(architecture: Architecture) -> Path:
        if architecture == shipment.architecture:
            return shipment.shipped.network
        return shipment.candidates.fine_tune(architecture)

    return fine_tuned_judgement(compared, measured.supernet, fine_tune)


def _table_networks(known: KnownTable | None) -> list[PredictedMeasured]:
    if known is None or known.table.evidence is None:
        return []
    networks = known.table.evidence.validation.networks
    return [PredictedMeasured(predicted_ms=n.predicted_ms, measured_ms=n.latency_ms) for n in networks]


def _rounds(shipment: Shipment) -> list[Round]:
    """First the networks that were only measured, then those that were exported."""
    exports = [
        round_of(made, made.what.architecture, exported=True)
        for made in shipment.rounds
        if made.target_ms != float("inf")
    ]
    return [*shipment.candidates.probes, *exports]


def _calibration(shipped: Exported) -> CalibrationRecord | None:
    int8 = shipped.files.mixed or shipped.files.int8
    if int8 is None:
        return None
    record = CalibrationRecord(
        **asdict(int8.calibration),
        images=int8.calibration_images,
        accuracy_drop=None if shipped.record.untrained else int8.lost.drop,
        not_trained=int8.not_trained,
        weight_bits=int8.quantization.weight_bits,
        weights=int8.quantization.weights,
        instruction_sets=int8.processor.instruction_sets,
        integer_sums=int8.processor.sums,
        any_processor=int8.quantization.sums_exactly,
        kernels=KernelRecord(**asdict(int8.kernels)) if int8.kernels else None,
    )
    return record.model_copy(update={"method": "trained", "share": None}) if int8.trained else record


def _changes(
    architecture: Architecture, estimator: StoredEstimator | None, table: LatencyTable | None
) -> list[ChangeWorth]:
    """What changing one thing about the shipped network is worth, the most accurate first."""
    if estimator is None or estimator.scale == "ordinal":
        return []
    return [
        ChangeWorth(
            name=f"{change.place}, {change.what}",
            accuracy=change.accuracy,
            accuracy_se=change.accuracy_se,
            latency_ms=change.latency_ms,
        )
        for change in single_changes(estimator, architecture, table)
    ]


def _warnings(report: ReportFile, bench: BenchResult, busiest: float) -> list[str]:
    found = [UNTRAINED_MEANS] if report.untrained else []
    found += slowed_down(bench.provenance)
    if report.budget_ms is None:
        found.append("no budget was given, so none was kept")
    found += [
        f"the undisturbed latency of {file.path} is {file.timing.stability}: measure again on a quieter machine"
        for file in report.files
        if file.timing and not file.timing.stable
    ]
    if busiest > report.hardware.cores:
        found.append(
            f"other programs were busy while it was measured (load {busiest:.1f} on {report.hardware.cores} cores): "
            "the latency as it was is that of a machine as busy"
        )
    if report.predicted_ms is None:
        found.append("there is no latency table of this device, so nothing was predicted")
    error = report.prediction_error
    if error is not None and abs(error) > GOOD_PREDICTION:
        found.append(f"the table's prediction is off by {100 * error:+.1f} %")
    if report.predicted_accuracy is not None and not (
        report.estimator_validation and report.estimator_validation.networks
    ):
        found.append("the estimator was not validated: its accuracies are for ranking")
    if report.gain is None and not report.untrained:
        found.append("nothing was compared: the supernet is not known, or is of other images")
    if report.test_accuracy is None and not report.untrained:
        found.append("the data has no test part: the accuracy is of images that the search used too")
    if report.calibration and report.calibration.not_trained:
        found.append(f"weights that were trained in 8 bits were left out: {report.calibration.not_trained}")
    found += [verdict.words for verdict in report.verdicts if verdict.ships and verdict.doubtful]
    ties = report.verification.ties
    if ties:
        found.append(f"{ties} validation images are ties, which the runtime broke differently from torch")
    return found
