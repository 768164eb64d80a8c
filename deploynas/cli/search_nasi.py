"""`search --solver nasi`: choices are weighed without any training, then the exact search among these weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.accuracy.training_free.registry import NASI
from deploynas.cli.console import progress_bar, say
from deploynas.cli.options import with_options
from deploynas.cli.search_asked import Asked
from deploynas.cli.search_estimated import answered, measured, request_of
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.accuracy.training_free.nasi import NasiSettings
    from deploynas.pipeline.nasi import Nasi
    from deploynas.search.result_file import SearchFile

with_nasi_options = with_options(
    click.option(
        "--nu", type=click.Choice(["fixed", "adaptive"]),
        help="Of nasi: the gradient from which on more counts against a network.  [default: fixed]",
    ),
    click.option(
        "--mu", type=click.FloatRange(min=0), help="Of nasi: how much that counts.  [default: 1.0]"
    ),
)  # fmt: skip
OPTIONS = {"nu": "--nu", "mu": "--mu"}


def find(asked: Asked) -> SearchFile | None:
    nasi, weights = _opened(asked)
    with progress_bar("nasi") as on_progress:
        nasi.weigh(weights, on_progress)
    say(f"wrote {weights}")
    asked = replace(asked, estimator=weights, solver="exact")
    request = request_of(asked)
    document = answered(request, asked)
    if document is None:
        return None
    document.provenance["solver"] = NASI
    if document.networks:
        say(nasi.beside_random(document.network(1), request.problem()))
    return measured(document, asked)


def _opened(asked: Asked) -> tuple[Nasi, Path]:
    """And where its weights go."""
    from deploynas.pipeline.nasi import Nasi
    from deploynas.pipeline.training_free import RANDOM
    from deploynas.space import Space

    if asked.estimator is not None:
        raise InputError("`--solver nasi` weighs choices itself, and takes no `--estimator`")
    if asked.space_name is None:
        raise InputError("`--solver nasi` needs a space", hint="`--space fashion`, or a YAML file of yours")
    if asked.out is None:
        raise InputError("`--solver nasi` writes its weights beside the result", hint="give `--out found.json`")
    nasi = Nasi(Space.load(asked.space_name), asked.data or RANDOM, _settings(asked))
    return nasi, asked.out.with_suffix(".estimator.json")


def _settings(asked: Asked) -> NasiSettings:
    """What the options ask for; the defaults are those of the settings."""
    from deploynas.accuracy.training_free.nasi import NasiSettings

    return NasiSettings(**asked.given(OPTIONS), seed=asked.seed)
