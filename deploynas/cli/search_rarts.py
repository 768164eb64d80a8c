"""`search --solver rarts`: choices are learned as probabilities on a supernet, then the exact search repairs them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import progress_bar, say
from deploynas.cli.options import with_options
from deploynas.cli.search_asked import Asked, refuse_for
from deploynas.cli.search_estimated import answered, measured, request_of
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.pipeline.relaxed import Relaxed, Start
    from deploynas.search.result_file import RelaxedRecord, SearchFile
    from deploynas.training.relaxed import RelaxedSettings

RARTS = "rarts"
with_rarts_options = with_options(
    click.option(
        "--updates", type=click.Choice(["rarts", "darts", "milenas"]),
        help="Of rarts: by which rule weights and probabilities learn.  [default: rarts]",
    ),
    click.option(
        "--search-epochs", type=click.IntRange(min=1), metavar="N",
        help="Of rarts: passes over each half of the training images, for every gamma.  [default: 5]",
    ),
    click.option(
        "--gammas", type=click.IntRange(min=1), metavar="N",
        help="Of rarts: weights of the penalty that are tried, none included.  [default: 6]",
    ),
)  # fmt: skip
OPTIONS = {"updates": "--updates", "search_epochs": "--search-epochs", "gammas": "--gammas"}


def find(asked: Asked) -> SearchFile | None:
    _refuse_what_is_not_for_it(asked)
    assert asked.out is not None
    relaxed = _opened(asked)
    with progress_bar(f"search ({relaxed.settings.updates.rule})") as on_progress:
        outcome = relaxed.search(on_progress)
    weights = asked.out.with_suffix(".estimator.json")
    outcome.save_estimator(weights)
    say(f"wrote {weights}")
    asked = replace(asked, estimator=weights, solver="exact", supernet=None)
    document = answered(request_of(asked), asked)
    if document is None:
        return None
    document.provenance["solver"] = RARTS
    document.relaxed = outcome.record(document.network(1))
    for line in in_words(document.relaxed):
        say(line)
    return measured(document, asked)


def _refuse_what_is_not_for_it(asked: Asked) -> None:
    of_one = "it finds one network, or with `--top K` the best K, within all limits"
    afterwards = "search with the `.estimator.json` that it leaves beside its result"
    refuse_for(
        "--solver rarts",
        [
            ("--estimator", asked.estimator, "it learns itself what decisions are worth"),
            ("--each", asked.each, of_one),
            ("--frontier", asked.frontier, afterwards),
            ("--dry-run", asked.dry_run, of_one),
            ("--refine", asked.refine, "its scores only rank, so there is nothing to refine"),
        ],
    )
    if asked.out is None:
        raise InputError("`--solver rarts` writes what it learned beside the result", hint="give `--out found.json`")


def _opened(asked: Asked) -> Relaxed:
    from deploynas.pipeline.relaxed import TRIES, Relaxed
    from deploynas.pipeline.within import Within

    within = Within.of(asked.tables, asked.resources, asked.goal)
    if not within.limits:
        raise InputError("nothing limits the network", hint="`--latency TABLE:MS`, `--max-params N`, ...")
    tries = asked.own["gammas"]
    return Relaxed(_start(asked), within, _settings(asked), tries if isinstance(tries, int) else TRIES)


def _start(asked: Asked) -> Start:
    from deploynas.pipeline.relaxed import Start
    from deploynas.space import Space

    if asked.supernet is not None:
        start = Start.trained(asked.supernet, asked.data)
        if asked.space_name is not None:
            Space.load(asked.space_name).require_hash(start.space.hash, f"{asked.supernet}: its supernet")
        return start
    if asked.space_name is None or asked.data is None:
        raise InputError(
            "`--solver rarts` starts from a supernet, or from scratch with a space and images",
            hint="`--supernet RUN`, or `--space fashion --data fashion-mini`",
        )
    return Start.from_scratch(Space.load(asked.space_name), asked.data, asked.seed)


def _settings(asked: Asked) -> RelaxedSettings:
    """What the options ask for; the defaults are those of the settings."""
    from deploynas.training.relaxed import RelaxedSettings
    from deploynas.training.relaxed_updates import updates_for

    rule, epochs = asked.own["updates"], asked.own["search_epochs"]
    settings = RelaxedSettings(updates_for(rule if isinstance(rule, str) else RARTS), seed=asked.seed)
    return replace(settings, epochs=epochs) if isinstance(epochs, int) else settings


def in_words(record: RelaxedRecord) -> list[str]:
    """What was tried, and what the repair changed."""
    lines = []
    for tried in record.tried:
        costs = ", ".join(
            f"{own.name} {own.expected:.4g} expected, {own.most_probable:.4g} of the most probable network "
            f"(budget {own.budget:.4g})"
            for own in tried.expected
        )
        taken = "; taken" if tried.gamma == record.gamma else ""
        lines.append(f"gamma {tried.gamma:.4g}, {tried.steps} steps: {costs}{taken}")
    changes = "; ".join(f"{one.decision}: {one.before or 'none'} to {one.after or 'none'}" for one in record.repaired)
    lines.append(f"the exact search changed {changes}" if changes else "the most probable network is the answer")
    return lines
