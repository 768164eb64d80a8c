"""Gathers what a report shows: the shipped network block by block, the frontier around it, and reasons for doubt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deploynas.accuracy.bilinear import BilinearEstimator
from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.accuracy.insights import insights_of
from deploynas.blocks import Part
from deploynas.costs import Costs, part_costs
from deploynas.export.budget import Attempt
from deploynas.files import now
from deploynas.latency.hardware import versions
from deploynas.latency.measure import measure_networks
from deploynas.report.document import (
    BlockReport,
    Decision,
    MeasuredPoint,
    Point,
    PredictedMeasured,
    ReportFile,
    Round,
    ShippedFile,
)
from deploynas.search.frontier import Frontier, frontier
from deploynas.shipping.candidates import Candidates
from deploynas.shipping.sources import KnownTable
from deploynas.space import Architecture, Space
from deploynas.supernet.network import Supernet
from deploynas.training.batches import Batches
from deploynas.training.evaluation import accuracy

if TYPE_CHECKING:
    from deploynas.shipping.delivery import Exported

FRONTIER_POINTS = 60
DECISIONS = 16  # that a report shows
GOOD_PREDICTION = 0.05  # what the prediction of a shipped network should be within
DISTURBED = 1.1  # a machine that many times slower than undisturbed is worth a warning


@dataclass(frozen=True)
class Evidence:
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
        assert self.shipped.checkpoint.architecture is not None
        return self.candidates.space.architecture(self.shipped.checkpoint.architecture.choices)


def report_document(evidence: Evidence) -> ReportFile:
    candidates, shipped, architecture = evidence.candidates, evidence.shipped, evidence.architecture
    space, device, table = candidates.space, candidates.device, candidates.table
    about, costs = shipped.checkpoint.about, Costs.of(space, architecture)
    estimator = load_estimator(candidates.sources.estimator) if candidates.sources.estimator else None
    bench = shipped.benches[device.precision]
    points = frontier(space, estimator, table.table) if table and isinstance(estimator, BilinearEstimator) else None
    lineage = candidates.sources.lineage(shipped.network, table)
    report = ReportFile(
        title=f"{space.name} on {device.name}",
        created=now(),
        space=space.name,
        space_size=_rounded(space.size()),
        device=device.describe(),
        hardware=bench.provenance["hardware"],
        data=evidence.batches.data.describe(),
        architecture=str(architecture),
        choices=[list(choice) for choice in architecture.choices],
        budget_ms=evidence.budget_ms,
        gated=device.precision,
        params=costs.params,
        macs=costs.macs,
        peak_memory_bytes=costs.peak_memory_bytes,
        predicted_ms=table.table.predict(architecture) if table else None,
        table_error=table.table.mean_error if table else None,
        predicted_accuracy=_expected(estimator, estimator.predict(architecture)) if estimator else None,
        predicted_accuracy_se=estimator.predict_se(architecture) if estimator else None,
        inherited_accuracy=about.get("inherited_accuracy"),
        test_accuracy=about.get("test_accuracy"),
        files=_files(shipped),
        blocks=_blocks(evidence),
        frontier=_points(points, estimator),
        measured=_measured(evidence, estimator, points),
        table_networks=_table_networks(evidence),
        rounds=_rounds(evidence),
        verification=asdict(shipped.fp32.verification),
        calibration=_calibration(shipped),
        decisions=_decisions(estimator, table),
        estimator_validation=estimator.validation.model_dump() if estimator and estimator.validation else None,
        lineage={name: found.model_dump() if found else None for name, found in lineage.items()},
        versions=versions(),
    )
    return report.model_copy(update={"warnings": _warnings(report, bench.provenance)})


def _rounded(size: int) -> str:
    """A number that may be too large for a float."""
    return str(size) if size <= 10**6 else f"about {Decimal(size):.1e}".replace("+", "")


def _files(shipped: Exported) -> list[ShippedFile]:
    from deploynas.shipping.delivery import MODEL

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


def _blocks(evidence: Evidence) -> list[BlockReport]:
    space, architecture, table = evidence.candidates.space, evidence.architecture, evidence.candidates.table
    bench = evidence.shipped.benches[evidence.candidates.device.precision]
    shares = {share.name: share for share in bench.breakdown}
    predicted: dict[str, float] = {}
    if table:
        names = [name for name, part in space.parts(architecture) if part.role == "block"]
        for name, (s, b, c) in zip(names, architecture.decisions(), strict=True):
            predicted[name] = table.table.block_ms[s][b][c]
    return [_block(name, part, predicted.get(name), shares.get(name)) for name, part in space.parts(architecture)]


def _block(name: str, part: Part, predicted_ms: float | None, share: Any) -> BlockReport:
    costs = part_costs(part)
    return BlockReport(
        name=name,
        kind=part.role,
        text=part.words(),
        in_channels=part.in_channels,
        out_channels=part.out_channels,
        stride=part.stride,
        height=part.height,
        width=part.width,
        params=costs.params,
        macs=costs.macs,
        predicted_ms=predicted_ms,
        measured_ms=share.latency_ms if share else None,
        share=share.share if share else None,
    )


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


def _measured(evidence: Evidence, estimator: StoredEstimator | None, points: Frontier | None) -> list[MeasuredPoint]:
    """Some networks of the frontier, timed on the device and judged with the weights that they inherit."""
    candidates, count = evidence.candidates, evidence.frontier_points
    if (
        points is None
        or estimator is None
        or candidates.sources.supernet is None
        or candidates.table is None
        or count < 2
    ):
        return []
    chosen = [point.architecture for point in points.thin(count)]
    timed = measure_networks(candidates.device, candidates.space, chosen)
    supernet, data = Supernet.load(candidates.sources.supernet), evidence.batches.data
    return [
        MeasuredPoint(
            latency_ms=measured.latency_ms,
            accuracy=accuracy(supernet, evidence.batches, data.validation, _in(supernet.space, architecture)),
            architecture=str(architecture),
            predicted_ms=candidates.table.table.predict(architecture),
            predicted_accuracy=_expected(estimator, estimator.predict(architecture)),
        )
        for architecture, measured in zip(chosen, timed, strict=True)
    ]


def _in(space: Space, architecture: Architecture) -> Architecture:
    """The same space may go by another name."""
    return space.architecture(architecture.choices)


def _table_networks(evidence: Evidence) -> list[PredictedMeasured]:
    table = evidence.candidates.table
    if table is None or table.table.evidence is None:
        return []
    networks = table.table.evidence.validation.networks
    return [PredictedMeasured(predicted_ms=n.predicted_ms, measured_ms=n.latency_ms) for n in networks]


def _rounds(evidence: Evidence) -> list[Round]:
    """First the networks that were only measured, then those that were exported."""
    probes = [
        Round(
            target_ms=probe.target_ms,
            predicted_ms=probe.predicted_ms,
            measured_ms=probe.measured_ms,
            architecture=str(probe.what.architecture),
        )
        for probe in evidence.candidates.probes
    ]
    exports = [
        Round(
            target_ms=made.target_ms,
            predicted_ms=made.predicted_ms,
            measured_ms=made.measured_ms,
            architecture=str(made.what.checkpoint.architecture),
        )
        for made in evidence.rounds
        if made.target_ms != float("inf")
    ]
    return [*probes, *exports]


def _calibration(shipped: Exported) -> dict[str, Any] | None:
    if shipped.int8 is None:
        return None
    return {
        **asdict(shipped.int8.calibration),
        "images": shipped.int8.calibration_images,
        "accuracy_drop": shipped.int8.accuracy_drop,
    }


def _decisions(estimator: StoredEstimator | None, table: KnownTable | None) -> list[Decision]:
    """What depth, expansion, kernel and squeeze-and-excitation of each stage were worth, the largest first."""
    if not isinstance(estimator, BilinearEstimator):
        return []
    found = insights_of(estimator, table.table.block_ms if table else None)
    stages = [insight for insight in found if insight.place.startswith("stage")]
    return [
        Decision(
            name=f"{insight.place}, {insight.aspect} {insight.change}",
            accuracy=insight.gain,
            accuracy_se=insight.gain_se,
            latency_ms=insight.cost_ms,
        )
        for insight in sorted(stages, key=lambda insight: -abs(insight.gain))[:DECISIONS]
    ]


def _warnings(report: ReportFile, provenance: dict[str, Any]) -> list[str]:
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
    if max(provenance["load_before"][0], provenance["load_after"][0]) > report.hardware.get("cores", 1):
        found.append("other programs were busy on the machine while it was measured")
    if report.predicted_ms is None:
        found.append("there is no latency table of this device, so nothing was predicted")
    error = report.prediction_error
    if error is not None and abs(error) > GOOD_PREDICTION:
        found.append(f"the predicted latency is off by {100 * error:+.1f} %")
    if report.predicted_accuracy is not None and not (report.estimator_validation or {}).get("networks"):
        found.append("the estimator was not validated: its accuracies are for ranking")
    if report.test_accuracy is None:
        found.append("the data has no test part: the accuracy is of images that the search used too")
    by_precision = {file.precision: file.latency_ms for file in report.files}
    if by_precision.get("int8", 0.0) > by_precision["fp32"]:
        found.append("in 8 bits the network is slower than in fp32 on this device")
    if report.verification["ties"]:
        ties = report.verification["ties"]
        found.append(f"{ties} validation images are ties, which the runtime broke differently from torch")
    return found
