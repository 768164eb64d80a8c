"""The options of `estimate --from`: which column of a file of results holds what, and whose results they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploynas.cli.options import Values, with_options

if TYPE_CHECKING:
    from deploynas.accuracy.fourier_fit import FourierSettings
    from deploynas.accuracy.results_estimation import ResultsSettings

# by the names of their parameters
COLUMNS, CREDITS = ("architectures", "accuracy", "weight", "standard_error", "group"), ("about", "source", "licence")
RESULTS_OPTIONS = ("space_name", *COLUMNS, "percent", "tolerance", *CREDITS)

with_results_options = with_options(
    click.option("--space", "space_name", metavar="NAME|FILE", help="Of `--from` and `--method training-free`."),
    click.option(
        "--architectures", metavar="COLUMN",
        help="Of `--from`: timm's notation, Once-for-all's JSON, or choices.  [default: architecture, arch or network]",
    ),
    click.option(
        "--accuracy", metavar="COLUMN", help="Of `--from`.  [default: accuracy, acc or top1, or these + _percent]"
    ),
    click.option(
        "--percent/--fraction", default=None,
        help="Of `--from`: what accuracies are.  [default: per cent if the name says so, or if all are above 1]",
    ),
    click.option(
        "--weight", metavar="COLUMN", help="Of `--from`: multiplies squared errors.  [default: weight, if there is one]"
    ),
    click.option(
        "--standard-error", metavar="COLUMN",
        help="Of `--from`: of the accuracies, in their unit.  [default: standard_error, if there is one]",
    ),
    click.option(
        "--group", metavar="COLUMN", help="Of `--from`: also leave out whole groups, as the networks of one search."
    ),
    click.option(
        "--tolerance", type=click.FloatRange(0, 100), default=0.5, show_default=True, metavar="POINTS",
        help="Of `--from`: how far repeated measurements without standard errors may differ.",
    ),
    click.option("--about", metavar="TEXT", help="Of `--from`: what was measured; kept in the file."),
    click.option("--source", metavar="TEXT", help="Of `--from`: who published it, and where; kept in the file."),
    click.option("--licence", metavar="TEXT", help="Of `--from`: of the results; kept in the file."),
)  # fmt: skip


def results_settings(
    options: Values, method: str, seed: int, fourier: FourierSettings | None = None
) -> ResultsSettings:
    """What the options of `with_results_options` ask for."""
    from deploynas.accuracy.results_estimation import ResultsSettings
    from deploynas.accuracy.results_table import ResultsFormat
    from deploynas.provenance import Credits

    unit = {None: None, True: "percent", False: "fraction"}[options["percent"]]  # type: ignore[index]
    columns = {name: options[name] for name in COLUMNS}
    tolerance = float(options["tolerance"]) / 100  # type: ignore[arg-type]
    format = ResultsFormat(**columns, unit=unit, tolerance=tolerance)  # type: ignore[arg-type]
    credits = Credits(**{name: options[name] for name in CREDITS})  # type: ignore[arg-type]
    return ResultsSettings(method, format, credits, seed, fourier)  # type: ignore[arg-type]
