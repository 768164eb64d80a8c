"""`deploynas search`: the most accurate network within the budgets, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click

from deploynas.accuracy.shipped_estimators import SHIPPED, shipped_estimator
from deploynas.accuracy.training_free.registry import HNAS, NASI
from deploynas.cli.console import json_option, print_json, progress_bar, say
from deploynas.cli.options import (
    goal_of,
    out_option,
    resources_of,
    supernet_help,
    with_goal_options,
    with_resource_options,
)
from deploynas.cli.search_hnas import (
    find_by_hnas,
    refuse_beside_hnas,
    refuse_without_hnas,
    settings_of,
    validating,
    with_hnas_options,
    within_of,
)
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from deploynas.accuracy.training_free.nasi import NasiSettings, Nu
    from deploynas.latency.table import LatencyTable
    from deploynas.pipeline.nasi import Nasi
    from deploynas.pipeline.search_request import SearchRequest
    from deploynas.search.result_file import RefinementRound, SearchFile


@click.command("search")
@click.option(
    "--estimator",
    "estimator_path",
    type=click.Path(path_type=Path),
    metavar="FILE|NAME",
    help=f"What every decision is worth: a file from `estimate`, or one that ships: {', '.join(SHIPPED)}.",
)
@click.option(
    "--latency",
    multiple=True,
    metavar="TABLE[:MS]",
    help="A latency table from `profile` and its budget in ms. Several: one network for all devices.",
)
@with_goal_options
@with_resource_options
@click.option("--space", "space_name", metavar="NAME|FILE", help="By default the space that the estimator embeds.")
@click.option(
    "--solver",
    default="exact",
    show_default=True,
    help="exact, milp, bcfw, evolution or best-of; nasi and hnas, which need no estimator.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="For solvers that draw random numbers.")
@click.option("--top", type=click.IntRange(min=1), metavar="K", help="The K best networks, best first.")
@click.option(
    "--rerank",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help=f"Measure the K best in this supernet and order them by that. {supernet_help}",
)
@click.option(
    "--measure",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="The same, and time the K best on a device: accuracy and latency beside the predictions.",
)
@click.option("--device", "device_name", metavar="NAME|FILE", help="For `--measure`.  [default: that of the table]")
@click.option(
    "--refine",
    type=click.IntRange(min=2),
    metavar="N",
    help="First measure networks of the frontier, in N rounds at most, and refine the estimator with them.",
)
@click.option(
    "--supernet",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help=f"For `--refine` and hnas. {supernet_help}  [default for `--refine`: that of the estimator, or runs/SPACE]",
)
@click.option("--data", help="For the measurements.  [default: what the supernet was trained on; for nasi, random]")
@click.option("--nu", type=click.Choice(["fixed", "adaptive"]), default="fixed", show_default=True,
              help="Of nasi: the gradient from which on more counts against a network.")  # fmt: skip
@click.option("--mu", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Of nasi: how much it counts.")
@with_hnas_options
@click.option("--each", is_flag=True, help="The best network of each device instead of one for all.")
@click.option("--frontier", is_flag=True, help="Every optimal network of one table, fastest first.")
@click.option("--thin", type=click.IntRange(min=2), metavar="N", help="Of the frontier, those of N even budgets.")
@click.option("--dry-run", is_flag=True, help="Only what networks cost, and whether the limits can be met.")
@out_option("Write the result here, as JSON.")
@json_option
def command(
    estimator_path: Path | None,
    latency: tuple[str, ...],
    space_name: str | None,
    solver: str,
    seed: int,
    top: int | None,
    rerank: Path | None,
    measure: Path | None,
    device_name: str | None,
    refine: int | None,
    supernet: Path | None,
    data: str | None,
    nu: Nu,
    mu: float,
    each: bool,
    frontier: bool,
    thin: int | None,
    dry_run: bool,
    out: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Find the most accurate network within the budgets.

    With one table and no budget, the fastest network that is expected to be within one point of the best. With the
    default solver the answer is the proven optimum. Exit code 3: no network is within all limits; the message names
    the limit in the way.

    Without any training, the best of Once-for-all's ImageNet networks within 10 ms on this machine:

    \b
    deploynas profile --space ofa-mbv3 -o my.json
    deploynas search --estimator ofa-mbv3-imagenet --latency my.json:10
    """  # fmt: skip
    from deploynas.accuracy.training_free.nasi import NasiSettings
    from deploynas.pipeline.search import network_for_each, shared_network, whole_frontier
    from deploynas.pipeline.search_request import BudgetedTable, SearchRequest, SolverChoice

    _refuse_contradictions(top, each, frontier, thin, dry_run)
    _refuse_idle_options(top, rerank, measure, device_name)
    goal, tables, resources = goal_of(options), [BudgetedTable.parse(text) for text in latency], resources_of(options)
    if solver == HNAS:
        others = {"--estimator": estimator_path, "--each": each, "--frontier": frontier, "--dry-run": dry_run}
        refuse_beside_hnas({**others, "--refine": refine, "--rerank": rerank, "--measure": measure})
        opened = validating(supernet, space_name, data)
        document = find_by_hnas(opened, within_of(tables, resources, goal), settings_of(options, seed), top or 1)
        _hand_over(document, out, as_json, supernet)
        return
    refuse_without_hnas(options)
    nasi: Nasi | None = None
    if solver == NASI:
        nasi = _nasi(estimator_path, space_name, out, data, NasiSettings(mu=mu, nu=nu, seed=seed))
        estimator_path, solver = _weighed(nasi, out), "exact"
    if estimator_path is None:
        raise InputError("`--estimator` says what decisions are worth", hint="`--solver nasi` and `hnas` need none")
    choice = SolverChoice(solver, seed, top or 1)
    request = SearchRequest.open(estimator_path, tables, resources, choice, space_name, goal)
    if dry_run:
        _dry_run(request, as_json)
        return
    rounds = tuple["RefinementRound", ...]()
    if refine:
        request, rounds = _refined(request, refine, supernet, data, out)
    elif supernet:
        raise InputError(
            "`--supernet` is for `--refine` and `--solver hnas`",
            hint="`--measure` and `--rerank` name theirs themselves",
        )
    with progress_bar(f"search ({solver})") as on_progress:
        ask = network_for_each if each else shared_network
        answer = whole_frontier(request, thin) if frontier else ask(request, on_progress)
    answer.document.refinement = list(rounds)
    if nasi:
        answer.document.provenance["solver"] = NASI
        if answer.document.networks:
            say(nasi.beside_random(answer.document.network(1), request.problem()))
    _say_all(answer.remarks)
    if rerank:
        _rerank(answer.document, rerank, data)
    if measure:
        _rerank(answer.document, measure, data)
        _time(answer.document, [table.table for table in tables], device_name)
    _hand_over(answer.document, out, as_json)


def _nasi(
    estimator: Path | None, space_name: str | None, out: Path | None, data: str | None, settings: NasiSettings
) -> Nasi:
    from deploynas.pipeline.nasi import Nasi
    from deploynas.pipeline.training_free import RANDOM
    from deploynas.space import Space

    if estimator is not None:
        raise InputError("`--solver nasi` weighs choices itself, and takes no `--estimator`")
    if space_name is None:
        raise InputError("`--solver nasi` needs a space", hint="`--space fashion`, or a YAML file of yours")
    if out is None:
        raise InputError("`--solver nasi` writes its weights beside the result", hint="give `--out found.json`")
    return Nasi(Space.load(space_name), data or RANDOM, settings)


def _weighed(nasi: Nasi, out: Path | None) -> Path:
    assert out is not None
    path = out.with_suffix(".estimator.json")
    with progress_bar("nasi") as on_progress:
        nasi.weigh(path, on_progress)
    say(f"wrote {path}")
    return path


def _say_all(remarks: Sequence[str]) -> None:
    for remark in remarks:
        say(remark)


def _hand_over(document: SearchFile, out: Path | None, as_json: bool, supernet: Path | None = None) -> None:
    _show(document, as_json)
    if out:
        document.save(out)
        say(f"wrote {out}")
    _say_next(document, out, supernet)


def _refuse_contradictions(top: int | None, each: bool, frontier: bool, thin: int | None, dry_run: bool) -> None:
    asked = {"--top": top is not None, "--each": each, "--frontier": frontier, "--dry-run": dry_run}
    given = [name for name, is_asked in asked.items() if is_asked]
    if len(given) > 1:
        raise InputError(f"{' and '.join(f'`{name}`' for name in given)} ask for different answers", hint="give one")
    if thin is not None and not frontier:
        raise InputError("`--thin` is for `--frontier`")


def _refuse_idle_options(top: int | None, rerank: Path | None, measure: Path | None, device: str | None) -> None:
    if rerank is not None and measure is not None:
        raise InputError("`--measure` does what `--rerank` does, and more", hint="give one of them")
    for name, value in {"--rerank": rerank, "--measure": measure}.items():
        if value is not None and top is None:
            raise InputError(f"`{name}` is for the networks of `--top K`", hint=f"like `--top 5 {name} runs/fashion`")
    if device is not None and measure is None:
        raise InputError("`--device` is for `--measure`")


def _time(document: SearchFile, tables: Sequence[LatencyTable], device_name: str | None) -> None:
    """After the accuracies: a supernet that is not there is found missing before anything is timed."""
    from deploynas.device import Device
    from deploynas.pipeline.rerank import device_of, differences, time_networks

    device = Device.load(device_name) if device_name else device_of(tables)
    doubt = differences(device, tables)
    if doubt:
        say(f"warning: {doubt}")
    with progress_bar(f"timing on {device.name}") as on_progress:
        time_networks(document, device, tables, on_progress)


def _refined(
    request: SearchRequest, rounds: int, supernet: Path | None, data: str | None, out: Path | None
) -> tuple[SearchRequest, tuple[RefinementRound, ...]]:
    """The question to an estimator that was measured where the search goes, in a file beside the result."""
    from deploynas.pipeline.measured_networks import MeasuredNetworks
    from deploynas.pipeline.refine import refined_request
    from deploynas.pipeline.run_folder import RunFolder
    from deploynas.pipeline.supernet import open_supernet

    if out is None:
        raise InputError("`--refine` writes the refined estimator beside the result", hint="give `--out found.json`")
    space, path = request.space, out.with_suffix(".estimator.json")
    beside = RunFolder.with_estimator(request.estimator_path, space.name) or RunFolder.of_space(space.name)
    opened = open_supernet(supernet or beside, data)
    space.require_hash(opened.space.hash, f"{opened.path}: its supernet")
    with progress_bar("refine") as on_progress:
        request, found = refined_request(request, MeasuredNetworks(opened), rounds, path, on_progress)
    if found.rounds:
        say(found.in_words())
    say(f"wrote {path}")
    return request, found.rounds


def _rerank(document: SearchFile, supernet: Path, data: str | None) -> None:
    from deploynas.pipeline.rerank import rerank
    from deploynas.pipeline.supernet import open_supernet

    opened = open_supernet(supernet, data)
    with progress_bar("measure") as on_progress:
        rerank(document, opened, on_progress)


def _say_next(document: SearchFile, out: Path | None, supernet: Path | None = None) -> None:
    """Fine-tuning, if there is a supernet to inherit from."""
    from deploynas.pipeline.run_folder import RunFolder

    if out is None:
        say(f"next: {join(['deploynas', *sys.argv[1:], '--out', 'found.json'])}")
        return
    if document.estimator is None:
        say(f"next: deploynas finetune {out} --supernet {supernet or 'RUN'}")
        return
    there = RunFolder.with_estimator(Path(document.estimator.path), document.the_space().name)
    shipped = shipped_estimator(document.estimator.path)
    if there is None and shipped and RunFolder(shipped.run).w_star.exists():
        there = RunFolder(shipped.run)
    if there:
        say(f"next: deploynas finetune {out} --supernet {there.path}")
    elif shipped:
        say(f"next, for its weights: {shipped.import_command}, with the public checkpoint of that name")
        say(f"  then: deploynas finetune {out} --supernet {shipped.run}")


def _show(document: SearchFile, as_json: bool) -> None:
    from deploynas.cli import search_tables

    if as_json:
        print_json(document.model_dump(by_alias=True))
        return
    search_tables.show(document)


def _dry_run(request: SearchRequest, as_json: bool) -> None:
    from deploynas.cli import search_tables
    from deploynas.pipeline.goal import AtMost
    from deploynas.pipeline.search import budget_of_request
    from deploynas.search.feasibility import cost_ranges, require_feasible

    if not isinstance(request.wanted, AtMost):
        budget = budget_of_request(request)
        request = request.at_most(budget.asked_ms) if budget else request
    elif request.goal is not None:
        request = request.at_most(request.wanted.latency_ms)
    problem = request.problem()
    ranges = cost_ranges(problem)
    failure: GateError | None = None
    try:
        require_feasible(problem)
    except GateError as error:
        failure = error
    if as_json:
        print_json(search_tables.ranges_document(ranges, failure))
    else:
        search_tables.show_ranges(ranges)
    if failure:
        raise failure
    say("the limits can be met")
