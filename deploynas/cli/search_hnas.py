"""`search --solver hnas`: its options, what does not go with them, and what was spent, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploynas.accuracy.training_free.registry import DEFAULT_METRIC, HNAS_METRICS
from deploynas.cli.console import progress_bar
from deploynas.cli.options import with_options
from deploynas.cli.search_asked import Asked, refuse_for
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.accuracy.training_free.hnas import HnasSettings
    from deploynas.pipeline.supernet import TrainedSupernet
    from deploynas.search.result_file import HnasRecord, SearchFile

with_hnas_options = with_options(
    click.option(
        "--score", "metric", type=click.Choice(HNAS_METRICS),
        help=f"Of hnas: the training-free score that stands beside kappa.  [default: {DEFAULT_METRIC}]",
    ),
    click.option(
        "--pool", type=click.IntRange(min=2), metavar="N",
        help="Of hnas: random networks within the limits that are scored.  [default: 60]",
    ),
    click.option(
        "--validations", type=click.IntRange(min=1), metavar="N",
        help="Of hnas: networks whose one-shot accuracy is measured, and as many random ones.  [default: 10]",
    ),
)  # fmt: skip
OPTIONS = {"metric": "--score", "pool": "--pool", "validations": "--validations"}


def find(asked: Asked) -> SearchFile:
    from deploynas.pipeline.hnas import hnas_search
    from deploynas.pipeline.within import Within

    _refuse_what_is_not_for_it(asked)
    supernet = _validating(asked)
    within = Within.of(asked.tables, asked.resources, asked.goal)
    with progress_bar("search (hnas)") as on_progress:
        return hnas_search(supernet, within, _settings(asked), asked.top or 1, on_progress)


def _settings(asked: Asked) -> HnasSettings:
    """What the options ask for; the defaults are those of the settings."""
    from deploynas.accuracy.training_free.hnas import HnasSettings

    return HnasSettings(**asked.given(OPTIONS), seed=asked.seed)


def _refuse_what_is_not_for_it(asked: Asked) -> None:
    of_one = "it finds one network, or with `--top K` the best K, within all limits"
    measured = "the networks that it finds are measured already; `--top K` shows K of them"
    refused = [
        ("--estimator", asked.estimator, "it scores and validates networks itself"),
        ("--each", asked.each, of_one),
        ("--frontier", asked.frontier, of_one),
        ("--dry-run", asked.dry_run, of_one),
        ("--refine", asked.refine, of_one),
        ("--rerank", asked.rerank, measured),
        ("--measure", asked.measure, measured),
    ]
    refuse_for("--solver hnas", refused)


def _validating(asked: Asked) -> TrainedSupernet:
    """The supernet whose networks are validated."""
    from deploynas.pipeline.supernet import open_supernet
    from deploynas.space import Space

    if asked.supernet is None:
        raise InputError(
            "`--solver hnas` validates networks, so it needs a supernet",
            hint="`--supernet RUN`; without one, `--solver nasi` needs nothing trained",
        )
    opened = open_supernet(asked.supernet, asked.data)
    if asked.space_name is not None:
        Space.load(asked.space_name).require_hash(opened.space.hash, f"{opened.path}: its supernet")
    return opened


def spent(record: HnasRecord) -> str:
    """And what the same number of validations finds without any objective."""
    found = max(one.measured_accuracy for one in record.proposals)
    others = [one.measured_accuracy for one in record.random]
    mean = sum(others) / len(others)
    return (
        f"{record.scores} scores of a pool of {record.pool} networks within the limits, {record.validations} "
        f"validations: the best measured {100 * found:.2f} % (mu {record.mu:.3g}, nu {record.nu:.3g}); of as many "
        f"random networks of the pool the best measured {100 * max(others):.2f} %, the mean is {100 * mean:.2f} %"
    )
