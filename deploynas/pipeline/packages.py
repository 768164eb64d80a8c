"""What other runtimes read, put beside the models of a bundle: a Triton repository, ONNX Runtime's model package."""

from __future__ import annotations

from pathlib import Path

from deploynas.export.model_package import PACKAGE, MeasuredModel, Package, write_model_package
from deploynas.export.triton import Served, write_repository
from deploynas.latency.session_record import as_measured
from deploynas.pipeline.exported import Exported
from deploynas.report.document import ReportFile
from deploynas.report.latency_words import served_words

TRITON = "triton"


def write_triton(stage: Path, made: Exported, report: ReportFile) -> None:
    space, built = made.architecture.space, made.architecture.at_its_size.space
    for file in report.files:
        if file.precision == "bf16":
            continue  # a server has the file of fp32, and no word for computing it in bf16
        opened_on = report.device.opened_for(file.precision)
        name = space.name if file.precision == "fp32" else f"{space.name}_{file.precision}"
        content, about = (stage / file.path).read_bytes(), served_words(report, file)
        write_repository(stage / TRITON, Served(name, content, built, report.data.classes, opened_on, about))


def write_ort_package(stage: Path, made: Exported, report: ReportFile) -> None:
    """The file to deploy first: of variants that fit equally well the runtime takes the first.

    The package says once how files are opened, so those that are opened otherwise are left out: fp32 beside bf16.
    """
    opened_on = report.device.opened_for(report.gated)
    alike = [file for file in report.files if report.device.opened_for(file.precision) == opened_on]
    files = sorted(alike, key=lambda file: file is not report.shipped)
    package = Package(
        name=made.architecture.space.name,
        description=report.title,
        device=report.device.name,
        models=[MeasuredModel(stage / file.path, file.precision, file.accuracy, file.timing) for file in files],
        processor=report.hardware.processor,
        versions=report.versions,
        session=as_measured(opened_on, made.timed.gated_bench.provenance),
    )
    write_model_package(stage / PACKAGE, package)
