"""From a file of measured networks, somebody's results, to the file of an estimator. Nothing here needs torch."""

from __future__ import annotations

from pathlib import Path

from deploynas import __version__
from deploynas.accuracy.estimator_file import StoredEstimator
from deploynas.accuracy.results_estimation import ResultsSettings, estimate_from_table
from deploynas.accuracy.results_table import ResultsTable
from deploynas.files import now
from deploynas.progress import OnProgress, silent
from deploynas.space import Space


def estimate_from_results(
    results: str | Path,
    space: str | Path | Space,
    settings: ResultsSettings | None = None,
    out: str | Path | None = None,
    on_progress: OnProgress = silent,
) -> StoredEstimator:
    """A validated estimator from a CSV file of networks and their accuracies; written to `out`, if that is given."""
    settings = settings or ResultsSettings()
    known = space if isinstance(space, Space) else Space.load(space)
    table = ResultsTable.read(results, known, settings.format)
    estimator = estimate_from_table(table, settings, on_progress)
    estimator.provenance.update({"created": now(), "deploynas": __version__})
    if out is not None:
        estimator.save(out)
    return estimator
