"""`search --solver hnas`: its options, what does not go with them, and what was spent, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from deploynas.accuracy.training_free.registry import DEFAULT_METRIC, HNAS_METRICS
from deploynas.cli.console import progress_bar
from deploynas.cli.options import Values, with_options
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.accuracy.training_free.hnas import HnasSettings
    from deploynas.pipeline.goal import Goal
    from deploynas.pipeline.hnas import Within
    from deploynas.pipeline.search_request import BudgetedTable
    from deploynas.pipeline.supernet import TrainedSupernet
    from deploynas.search.problem import Limit
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
OF_NASI = ("mu", "nu")


def settings_of(options: Values, seed: int) -> HnasSettings:
    """What the options ask for; the defaults are those of the settings."""
    from deploynas.accuracy.training_free.hnas import HnasSettings

    asked = {name: options[name] for name in OPTIONS if options[name] is not None}
    return HnasSettings(**asked, seed=seed)  # type: ignore[arg-type]


def refuse_without_hnas(options: Values) -> None:
    for name, option in OPTIONS.items():
        if options[name] is not None:
            raise InputError(f"`{option}` is for `--solver hnas`")


def refuse_beside_hnas(others: Mapping[str, object]) -> None:
    """Options, with their values, that mean nothing to it; and those of nasi, which have values anyway."""
    source = click.get_current_context().get_parameter_source
    given = [option for option, value in others.items() if value]
    given += [f"--{name}" for name in OF_NASI if source(name) is not ParameterSource.DEFAULT]
    if given:
        raise InputError(f"`--solver hnas` takes no `{given[0]}`", hint=_instead(given[0]))


def _instead(option: str) -> str:
    if option in ("--mu", "--nu"):
        return "it chooses mu and nu itself, by validations"
    if option == "--estimator":
        return "it scores and validates networks itself"
    if option in ("--rerank", "--measure"):
        return "the networks that it finds are measured already; `--top K` shows K of them"
    return "it finds one network, or with `--top K` the best K, within all limits"


def validating(supernet: Path | None, space_name: str | None, data: str | None) -> TrainedSupernet:
    """The supernet whose networks are validated."""
    from deploynas.pipeline.supernet import open_supernet
    from deploynas.space import Space

    if supernet is None:
        raise InputError(
            "`--solver hnas` validates networks, so it needs a supernet",
            hint="`--supernet RUN`; without one, `--solver nasi` needs nothing trained",
        )
    opened = open_supernet(supernet, data)
    if space_name is not None:
        Space.load(space_name).require_hash(opened.space.hash, f"{opened.path}: its supernet")
    return opened


def within_of(tables: Sequence[BudgetedTable], resources: Sequence[Limit], goal: Goal | None) -> Within:
    """The limits; there may be none."""
    from deploynas.pipeline.hnas import Within

    return Within.of(tables, resources, goal)


def find_by_hnas(supernet: TrainedSupernet, within: Within, settings: HnasSettings, top: int) -> SearchFile:
    from deploynas.pipeline.hnas import hnas_search

    with progress_bar("search (hnas)") as on_progress:
        return hnas_search(supernet, within, settings, top, on_progress)


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
