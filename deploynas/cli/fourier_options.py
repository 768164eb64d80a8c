"""The options of `estimate --method fourier`: how a sparse polynomial is recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploynas.cli.options import Values, with_options

if TYPE_CHECKING:
    from deploynas.accuracy.fourier_fit import FourierSettings

FOURIER_OPTIONS = (
    "degree",
    "terms",
    "lasso",
    "threshold",
    "refit",
    "fourier_rounds",
)  # by the names of their parameters


class ThresholdType(click.ParamType):
    """An accuracy, or where it comes from."""

    name = "X|auto|none"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> float | str | None:
        if value in ("auto", "none") or isinstance(value, float):
            return value
        try:
            number = float(str(value))
        except ValueError:
            number = -1.0
        if not 0 <= number < 1:
            self.fail(f"{value!r} is neither an accuracy from 0 to 1 nor `auto` or `none`", parameter, context)
        return number


with_fourier_options = with_options(
    click.option(
        "--degree", type=click.IntRange(1, 3), default=2, show_default=True,
        help="Of fourier: bits that a term multiplies at most; 3 can only be searched by evolution.",
    ),
    click.option(
        "--terms", type=click.IntRange(min=1), metavar="S",
        help="Of fourier: keep the S largest terms.  [default: all that Lasso keeps; 14 with --rounds]",
    ),
    click.option(
        "--lasso", type=click.FloatRange(min=0, min_open=True), metavar="LAMBDA",
        help="Of fourier: the paper's lambda.  [default: the best on held-out networks]",
    ),
    click.option(
        "--threshold", type=ThresholdType(), default="auto", show_default=True,
        help="Of fourier: leave out networks below this accuracy; auto: five robust deviations below the median.",
    ),
    click.option(
        "--refit/--no-refit", default=None,
        help="Of fourier: least squares on the terms that Lasso keeps.  [default: what predicts held-out networks]",
    ),
    click.option(
        "--rounds", "fourier_rounds", type=click.IntRange(min=1), metavar="R",
        help="Of fourier, on a supernet: decide in up to R rounds, each among the networks that the last left.",
    ),
)  # fmt: skip


def fourier_of(options: Values) -> FourierSettings:
    """What the options of `with_fourier_options` ask for."""
    from deploynas.accuracy.fourier_fit import FourierSettings
    from deploynas.accuracy.sparse_recovery import RecoverySettings

    how = {name: options[name] for name in ("degree", "lasso", "terms", "refit")}
    return FourierSettings(RecoverySettings(**how), options["threshold"])  # type: ignore[arg-type]
