"""`search --ensemble N`: its options, what does not go with them, and what was found, in a table and in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import print_table, progress_bar, say
from deploynas.cli.options import Values, with_options
from deploynas.cli.search_asked import Asked, refuse_for
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.pipeline.search_request import BudgetedTable
    from deploynas.search.ensemble_record import EnsembleRecord
    from deploynas.search.joint_budget import Running
    from deploynas.search.result_file import SearchFile

ENSEMBLE = "ensemble"
SAMPLINGS = ("mc", "svgd-rd", "exact", "random")
with_ensemble_options = with_options(
    click.option(
        "--ensemble", type=int, metavar="N",
        help="N networks of a supernet that answer together, 2 to 5, within one latency budget.",
    ),
    click.option("--serial", is_flag=True, default=None, help="Of an ensemble: one after the other, latencies add up."),
    click.option("--parallel", is_flag=True, default=None, help="Of an ensemble: at once; the slowest counts."),
    click.option(
        "--sampling", type=click.Choice(SAMPLINGS),
        help="Of an ensemble: how sets are proposed; exact: the best pair or triple of a list.  [default: mc]",
    ),
    click.option("--draws", type=click.IntRange(min=1), metavar="T", help="Of an ensemble: sets drawn.  [default: 20]"),
    click.option(
        "--delta", type=click.FloatRange(-2, 1),
        help="Of svgd-rd: how much more members repel each other.  [default: -1, 0, 1 in turn]",
    ),
)  # fmt: skip
OPTIONS = {name: f"--{name}" for name in ("serial", "parallel", "sampling", "draws", "delta")}


def is_asked(options: Values) -> bool:
    return options[ENSEMBLE] is not None


def refuse_idle(asked: Asked) -> None:
    """Options of ensembles where none is asked for."""
    if is_asked(asked.own):
        return
    for name, option in OPTIONS.items():
        if asked.own[name] is not None:
            raise InputError(f"`{option}` is for `--ensemble N`", hint="add `--ensemble 2`, or leave it out")


def find(asked: Asked) -> SearchFile:
    from deploynas.pipeline.ensemble_result import EnsembleOrder
    from deploynas.pipeline.ensembles import EnsembleWishes
    from deploynas.pipeline.supernet import open_supernet

    own = asked.given(("sampling", "draws", "delta"))
    wishes = EnsembleWishes(asked.own[ENSEMBLE], **own, seed=asked.seed)  # type: ignore[arg-type]
    _refuse_what_is_not_for_it(asked)
    table, running = _budgeted(asked), _running(asked)
    if asked.supernet is None:
        raise InputError("`--ensemble` asks networks of a supernet what they say", hint="`--supernet RUN`")
    supernet = open_supernet(asked.supernet, asked.data)
    supernet.space.require_hash(table.table.space.hash, f"{table.path}: its table")
    order = EnsembleOrder(supernet, table, running, wishes, asked.estimator)
    with progress_bar(f"ensemble ({wishes.sampling})") as on_progress:
        return order.search(on_progress)


def _running(asked: Asked) -> Running:
    if bool(asked.own["serial"]) == bool(asked.own["parallel"]):
        raise InputError(
            "an ensemble is `--serial` or `--parallel`",
            hint="`--serial`: latencies add up; `--parallel`: each member on processors of its own, the slowest counts",
        )
    return "serial" if asked.own["serial"] else "parallel"


def _budgeted(asked: Asked) -> BudgetedTable:
    from deploynas.pipeline.goal import AtMost

    if len(asked.tables) != 1 or asked.resources:
        raise InputError("an ensemble is held to one latency budget", hint="one `--latency TABLE:MS`, nothing else")
    (table,) = asked.tables
    if isinstance(asked.goal, AtMost) and table.budget_ms is None:
        return replace(table, budget_ms=asked.goal.latency_ms)
    if asked.goal is not None:
        raise InputError("of an ensemble the budget is given", hint="`--latency TABLE:MS`")
    if table.budget_ms is None:
        raise InputError(f"`--latency {table.path}` has no budget", hint=f"`--latency {table.path}:10` for 10 ms")
    return table


def _refuse_what_is_not_for_it(asked: Asked) -> None:
    one = "it finds one set of networks within one budget"
    measured = "members are measured one-shot already"
    refused = [
        ("--solver", asked.solver != "exact", "`--sampling` says how sets are found"),
        ("--top", asked.top, one),
        ("--each", asked.each, one),
        ("--frontier", asked.frontier, one),
        ("--dry-run", asked.dry_run, one),
        ("--refine", asked.refine, measured),
        ("--rerank", asked.rerank, measured),
        ("--measure", asked.measure, measured),
        ("--space", asked.space_name, "the space is that of the supernet"),
    ]
    refuse_for("--ensemble", refused)


def show(document: SearchFile) -> None:
    """One row per answer, the members, and what the figures allow to say."""
    assert document.ensemble
    found = document.ensemble
    ours, single = found.scores[found.judged_on], found.single.scores[found.judged_on]
    rows = [
        [f"ensemble of {len(document.networks)} ({found.running})", f"{found.latency_ms:.4g}", _percent(ours.error),
         f"{ours.log_loss:.4f}", _percent(ours.calibration_error)],
        ["best single network", f"{found.single.latency_ms:.4g}", _percent(single.error),
         f"{single.log_loss:.4f}", _percent(single.calibration_error)],
    ]  # fmt: skip
    for number, (network, own) in enumerate(zip(document.networks, ours.member_errors, strict=True)):
        rows.append([f"member {number + 1}", f"{network.limits[0].predicted:.4g}", _percent(own), "", ""])
    columns = ["", "latency_ms, predicted", "error", "log loss", "calibration error"]
    print_table(columns, rows, title=f"budget {found.budget_ms:.4g} ms; {ours.images} {found.judged_on} images")
    for number, network in enumerate(document.networks):
        click.echo(f"{number + 1}: {network.architecture}")
    for sentence in words(found, len(document.networks)):
        say(sentence)


def words(found: EnsembleRecord, members: int) -> list[str]:
    """How it was found, why it is as good as it is, and whether a single network would do."""
    ours = found.scores[found.judged_on]
    how = f"{found.sets} sets of {members} compared, of {found.networks} networks"
    left_out = (
        f"; {found.repeated} draws left out: a network twice, or nothing within the budget" if found.repeated else ""
    )
    told = [
        f"found by {found.sampling}{f' (delta {found.delta:g})' if found.delta is not None else ''}: {how}{left_out}",
        f"members err on {_percent(ours.mean_member_error)} on average and disagree on {_percent(ours.disagreement)}; "
        f"together they err on {_percent(ours.error)}",
        verdict(found),
        "all with weights inherited from the supernet; members that are fine-tuned apart may differ more or less",
    ]
    if found.judged_on == "validation":
        told.append("judged on the images that it was chosen by, since the data have no others: errors are optimistic")
    if found.running == "parallel":
        told.append("parallel: each member needs processors of its own, the single network only those of one")
    return told


def verdict(found: EnsembleRecord) -> str:
    """Two standard errors of the paired difference, or it cannot be told."""
    apart, se = found.error_difference, found.error_difference_se
    figures = f"{100 * apart:+.2f} ± {100 * se:.2f} points of error, ensemble less single"
    figures += f" (the best of {found.single.candidates})"
    if apart > 2 * se:
        return f"the single network is better: {figures}"
    if apart < -2 * se:
        return f"the ensemble is better than the best single network within the same budget: {figures}"
    return f"no better than the best single network within the same budget, as far as can be told: {figures}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"
