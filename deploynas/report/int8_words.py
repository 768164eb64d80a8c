"""What a report says of 8 bits: part by part, assignment by assignment, and what integer kernels make of the file."""

from __future__ import annotations

from deploynas.report.document import CalibrationRecord
from deploynas.report.mixed_precision import AssignmentPoint, MixedPrecisionRecord, PartPrecision
from deploynas.report.numbers import ms

PART_COLUMNS = (
    "part", "", "in 8 bits", "accuracy lost, points", "divergence, nats", "saves, ms", "saves alone, ms",
)  # fmt: skip
ASSIGNMENT_COLUMNS = ("measured", "predicted", "loss measured, points", "loss predicted", "", "parts in 8 bits")


def part_rows(parts: list[PartPrecision]) -> list[tuple[str, ...]]:
    return [
        (
            part.name,
            part.text,
            "yes" if part.in_8_bits else "no",
            _points(part.accuracy_drop, part.accuracy_drop_se),
            f"{part.divergence:.2g} ± {part.divergence_se:.1g}",
            f"{part.gain_ms:+.3g}",
            f"{part.gain_alone_ms:+.3g}",
        )
        for part in parts
    ]


def ranked(record: MixedPrecisionRecord) -> list[PartPrecision]:
    """What 8 bits hurt most comes first."""
    return sorted(record.parts, key=lambda part: -part.divergence)


def assignment_rows(record: MixedPrecisionRecord) -> list[tuple[str, ...]]:
    """Of those that were measured, slowest first."""
    return [
        (
            ms(point.measured_ms),
            ms(point.predicted_ms),
            _points(point.measured_drop or 0.0, point.measured_drop_se),
            _points(point.predicted_drop),
            "chosen" if point.chosen else "",
            in_8_bits(point, record),
        )
        for point in record.frontier
        if point.measured_ms is not None
    ]


def in_8_bits(point: AssignmentPoint, record: MixedPrecisionRecord) -> str:
    """The shorter list of the two."""
    every = [part.name for part in record.parts]
    rest = [name for name in every if name not in point.in_8_bits]
    if not point.in_8_bits:
        return "none"
    if not rest:
        return "all"
    if len(rest) < len(point.in_8_bits):
        return f"all but {', '.join(rest)}"
    return ", ".join(point.in_8_bits)


def mixed_note(record: MixedPrecisionRecord) -> str:
    measured = sum(point.measured_ms is not None for point in record.frontier)
    return (
        f"Accuracy lost and divergence from fp32: when the part alone is in 8 bits, on {record.calibration_images} "
        f"calibration images. Saves: its neighbours being in 8 bits too, and alone, with the conversions at its "
        f"borders; from {record.assignments_timed} assignments timed whole, which the sum follows to "
        f"{ms(record.noise_ms)}. The frontier has {len(record.frontier)} assignments, exact for these sums; {measured} "
        f"of them were measured on the validation images. Chosen by what was measured: {record.goal}."
    )


def kernel_sentences(about: CalibrationRecord) -> list[str]:
    found = []
    if about.kernels:
        k = about.kernels
        found.append(
            f"Integer kernels here against the file's emulation in float, on {k.images} images: logits differ by at "
            f"most {k.max_difference:.2g} (the largest is {k.largest_logit:.3g}), same class on "
            f"{100 * k.same_class:.1f} %, accuracy {100 * k.accuracy:.2f} and {100 * k.emulated_accuracy:.2f} %."
        )
    if about.any_processor is None:
        return found
    where = f" It was verified with {', '.join(about.instruction_sets)}." if about.instruction_sets else ""
    if about.any_processor:
        types = "7 bits" if about.weight_bits == 7 else "unsigned bytes"
        found.append(f"Its weights are {types}, so integer kernels of every processor compute this.{where}")
    else:
        found.append(
            "x86 processors without VNNI compute something else: their integer kernels saturate with 8-bit weights, "
            f"and `predict.py` says so there.{where}"
        )
    return found


def _points(drop: float, se: float | None = None) -> str:
    return f"{100 * drop:+.2f}" + (f" ± {100 * se:.2f}" if se is not None else "")
