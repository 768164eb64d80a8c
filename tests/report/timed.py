"""A report with another timing."""

from __future__ import annotations

from deploynas.report.document import ReportFile
from deploynas.timing import Timing


def timed(report: ReportFile, timing: Timing, **others: object) -> ReportFile:
    """The same report with another timing of the shipped file, and other fields."""
    loading = report.shipped.timing.loading if report.shipped.timing else None
    shipped = report.shipped.model_copy(update={"timing": timing.model_copy(update={"loading": loading})})
    files = [shipped if file.precision == report.gated else file for file in report.files]
    return report.model_copy(update={"files": files, **others})
