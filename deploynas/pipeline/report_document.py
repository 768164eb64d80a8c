"""Gathers what a report shows: the shipped network block by block, the frontier around it, and reasons for doubt."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.indexed import IndexedEstimator
from deploynas.accuracy.insights import insights_of
from deploynas.costs import Costs
from deploynas.export.budget import Attempt
from deploynas.files import now
from deploynas.latency.hardware import versions
from deploynas.latency.measure import measure_networks
from deploynas.pipeline.candidates import Candidates, round_of
from deploynas.pipeline.exported import MODEL, Exported
from deploynas.pipeline.network_blocks import block_reports
from deploynas.pipeline.sources import KnownTable
from deploynas.report.document import (
    CalibrationRecord,
    ChangeWorth,
    EstimatorTrust,
    HardwareRecord,
    MeasuredPoint,
    Point,
    PredictedMeasured,
    ReportFile,
    Round,
    ShippedFile,
    VerificationRecord,
)
from deploynas.report.numbers import how_many
from deploynas.search.frontier import Frontier, frontier
from deploynas.space import Architecture
from deploynas.training.batches import Batches
from deploynas.training.evaluation import accuracy

FRONTIER_POINTS = 60
DECISIONS = 16  # that a report shows
GOOD_PREDICTION = 0.05  # what the prediction of a shipped network should be within
DISTURBED = 1.1  # a machine that many times slower than undisturbed is worth a warning


@dataclass(frozen=True)
class Shipment:
    """What is about to be shipped, and everything that was tried on the way."""

    candidates: Candidates
    budget_ms: float | None
    rounds: tuple[Attempt[Exported], ...]
    batches: Batches
    frontier_points: int

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
    bench = shipped.benches[device.precision]
    exact = isinstance(estimator, (BilinearEstimator, IndexedEstimator))
    points = frontier(space, estimator, table) if table and estimator and exact else None
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
        gated=device.precision,
        params=costs.params,
        macs=costs.macs,
        peak_memory_bytes=costs.peak_memory_bytes,
        predicted_ms=table.predict(architecture) if table else None,
        table_error=table.mean_error if table else None,
        predicted_accuracy=_expected(estimator, estimator.predict(architecture)) if estimator else None,
        predicted_accuracy_se=estimator.predict_se(architecture) if estimator else None,
        inherited_accuracy=record.inherited_accuracy,
        test_accuracy=record.test_accuracy,
        files=_files(shipped),
        blocks=block_reports(architecture, table, bench),
        frontier=_points(points, estimator),
        measured=_measured(shipment, points),
        table_networks=_table_networks(known),
        rounds=_rounds(shipment),
        verification=VerificationRecord.model_validate(asdict(shipped.fp32.verification)),
        calibration=_calibration(shipped),
        decisions=_decisions(estimator, known),
        estimator_validation=EstimatorTrust.model_validate(validation.model_dump()) if validation else None,
        lineage=candidates.sources.lineage(shipped.network, record.lineage, known),
        versions={name: str(version) for name, version in versions().items()},
    )
    busiest = max(bench.provenance["load_before"][0], bench.provenance["load_after"][0])
    return report.model_copy(update={"warnings": _warnings(report, busiest)})


def _files(shipped: Exported) -> list[ShippedFile]:
    accuracies = {"fp32": shipped.fp32.verification.onnx_accuracy}
    sizes = {"fp32": len(shipped.fp32.content)}
    if shipped.int8:
        accuracies["int8"], sizes["int8"] = shipped.int8.accuracy, len(shipped.int8.content)
    return [
        ShippedFile(
            path=MODEL[precision],
            precision=precision,
            size_bytes=sizes[precision],
            accuracy=accuracies[precision],
            latency_ms=result.measurement.latency_ms,
            relative_error=result.measurement.relative_error,
            stable=result.measurement.stable,
            disturbance=result.measurement.disturbance,
            percentiles_ms=result.percentiles_ms,
            throughput_per_s=result.throughput_per_s,
        )
        for precision, result in shipped.benches.items()
    ]


def _points(points: Frontier | None, estimator: StoredEstimator | None) -> list[Point]:
    if points is None or estimator is None:
        return []
    return [
        Point(latency_ms=p.latency_ms, accuracy=_expected(estimator, p.accuracy), architecture=str(p.architecture))
        for p in points.thin(FRONTIER_POINTS)
        if p.accuracy is not None
    ]


def _expected(estimator: StoredEstimator, predicted: float) -> float:
    """What a prediction is worth in measured accuracy, where the estimator knows; else the prediction."""
    expected = estimator.validation.expected(predicted) if estimator.validation else None
    return predicted if expected is None else expected


def _measured(shipment: Shipment, points: Frontier | None) -> list[MeasuredPoint]:
    """Some networks of the frontier, timed on the device and judged with the weights that they inherit."""
    candidates, count = shipment.candidates, shipment.frontier_points
    estimator, source, known = candidates.estimator, candidates.sources.supernet, candidates.table
    if points is None or estimator is None or source is None or known is None or count < 2:
        return []
    chosen = [point.architecture for point in points.thin(count)]
    timed = measure_networks(candidates.device, candidates.space, chosen)
    supernet = source.open()
    return [
        MeasuredPoint(
            latency_ms=measured.latency_ms,
            accuracy=accuracy(supernet.network, supernet.batches, supernet.data.validation, architecture),
            architecture=str(architecture),
            predicted_ms=known.table.predict(architecture),
            predicted_accuracy=_expected(estimator, estimator.predict(architecture)),
        )
        for architecture, measured in zip(chosen, timed, strict=True)
    ]


def _table_networks(known: KnownTable | None) -> list[PredictedMeasured]:
    if known is None or known.table.evidence is None:
        return []
    networks = known.table.evidence.validation.networks
    return [PredictedMeasured(predicted_ms=n.predicted_ms, measured_ms=n.latency_ms) for n in networks]


def _rounds(shipment: Shipment) -> list[Round]:
    """First the networks that were only measured, then those that were exported."""
    exports = [round_of(made, made.what.architecture) for made in shipment.rounds if made.target_ms != float("inf")]
    return [*shipment.candidates.probes, *exports]


def _calibration(shipped: Exported) -> CalibrationRecord | None:
    if shipped.int8 is None:
        return None
    return CalibrationRecord(
        **asdict(shipped.int8.calibration),
        images=shipped.int8.calibration_images,
        accuracy_drop=shipped.int8.accuracy_drop,
    )


def _decisions(estimator: StoredEstimator | None, table: KnownTable | None) -> list[ChangeWorth]:
    """What depth, expansion, kernel and squeeze-and-excitation of each stage were worth, the largest first."""
    if not isinstance(estimator, BilinearEstimator):
        return []
    found = insights_of(estimator, table.table.block_ms if table else None)
    stages = [insight for insight in found if insight.place.startswith("stage")]
    return [
        ChangeWorth(
            name=f"{insight.place}, {insight.aspect} {insight.change}",
            accuracy=insight.gain,
            accuracy_se=insight.gain_se,
            latency_ms=insight.cost_ms,
        )
        for insight in sorted(stages, key=lambda insight: -abs(insight.gain))[:DECISIONS]
    ]


def _warnings(report: ReportFile, busiest: float) -> list[str]:
    found = []
    if report.budget_ms is None:
        found.append("no budget was given, so none was kept")
    unstable = [file.path for file in report.files if not file.stable]
    if unstable:
        found.append(f"the timings of {', '.join(unstable)} scatter by more than the device file allows")
    disturbed = max(report.files, key=lambda file: file.disturbance)
    if disturbed.disturbance > DISTURBED:
        found.append(
            f"the machine was {100 * (disturbed.disturbance - 1):.0f} % slower than undisturbed: latencies are without "
            f"that, and as it was the median of {disturbed.path} took {disturbed.percentiles_ms['p50']:.4g} ms"
        )
    if busiest > report.hardware.cores:
        found.append("other programs were busy on the machine while it was measured")
    if report.predicted_ms is None:
        found.append("there is no latency table of this device, so nothing was predicted")
    error = report.prediction_error
    if error is not None and abs(error) > GOOD_PREDICTION:
        found.append(f"the predicted latency is off by {100 * error:+.1f} %")
    if report.predicted_accuracy is not None and not (
        report.estimator_validation and report.estimator_validation.networks
    ):
        found.append("the estimator was not validated: its accuracies are for ranking")
    if report.test_accuracy is None:
        found.append("the data has no test part: the accuracy is of images that the search used too")
    by_precision = {file.precision: file.latency_ms for file in report.files}
    if by_precision.get("int8", 0.0) > by_precision["fp32"]:
        found.append("in 8 bits the network is slower than in fp32 on this device")
    ties = report.verification.ties
    if ties:
        found.append(f"{ties} validation images are ties, which the runtime broke differently from torch")
    return found
