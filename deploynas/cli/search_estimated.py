"""`search` among the networks of an estimator: refined, answered, and the answers measured, as far as asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploynas.cli.console import print_json, progress_bar, say
from deploynas.cli.search_asked import Asked
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from pathlib import Path

    from deploynas.pipeline.search_request import SearchRequest
    from deploynas.search.result_file import RefinementRound, SearchFile


def find(asked: Asked) -> SearchFile | None:
    """None: of a dry run, which prints what it found."""
    document = answered(request_of(asked), asked)
    return document and measured(document, asked)


def request_of(asked: Asked) -> SearchRequest:
    from deploynas.pipeline.search_request import SearchRequest, SolverChoice

    if asked.estimator is None:
        raise InputError(
            "`--estimator` says what decisions are worth", hint="`--solver nasi`, `hnas` and `rarts` need none"
        )
    choice = SolverChoice(asked.solver, asked.seed, asked.top or 1)
    return SearchRequest.open(asked.estimator, asked.tables, asked.resources, choice, asked.space_name, asked.goal)


def answered(request: SearchRequest, asked: Asked) -> SearchFile | None:
    from deploynas.pipeline.search import network_for_each, shared_network, whole_frontier

    if asked.dry_run:
        _dry_run(request, asked.as_json)
        return None
    if asked.refine is None and asked.supernet:
        raise InputError(
            "`--supernet` is for `--refine`, `--solver hnas` and `--solver rarts`",
            hint="`--measure` and `--rerank` name theirs themselves",
        )
    request, rounds = _refined(request, asked) if asked.refine else (request, ())
    with progress_bar(f"search ({asked.solver})") as on_progress:
        if asked.frontier:
            answer = whole_frontier(request, asked.thin)
        else:
            answer = (network_for_each if asked.each else shared_network)(request, on_progress)
    answer.document.refinement = list(rounds)
    for remark in answer.remarks:
        say(remark)
    return answer.document


def measured(document: SearchFile, asked: Asked) -> SearchFile:
    """Accuracies first: a supernet that is not there is found missing before anything is timed."""
    supernet = asked.rerank or asked.measure
    if supernet:
        _rerank(document, supernet, asked.data)
    if asked.measure:
        _time(document, asked)
    return document


def _time(document: SearchFile, asked: Asked) -> None:
    from deploynas.device import Device
    from deploynas.pipeline.rerank import device_of, differences, time_networks

    tables = [table.table for table in asked.tables]
    device = Device.load(asked.device_name) if asked.device_name else device_of(tables)
    doubt = differences(device, tables)
    if doubt:
        say(f"warning: {doubt}")
    with progress_bar(f"timing on {device.name}") as on_progress:
        time_networks(document, device, tables, on_progress)


def _refined(request: SearchRequest, asked: Asked) -> tuple[SearchRequest, tuple[RefinementRound, ...]]:
    """The question to an estimator that was measured where the search goes, in a file beside the result."""
    from deploynas.pipeline.measured_networks import MeasuredNetworks
    from deploynas.pipeline.refine import refined_request
    from deploynas.pipeline.run_folder import RunFolder
    from deploynas.pipeline.supernet import open_supernet

    if asked.out is None:
        raise InputError("`--refine` writes the refined estimator beside the result", hint="give `--out found.json`")
    space, path = request.space, asked.out.with_suffix(".estimator.json")
    beside = RunFolder.with_estimator(request.estimator_path, space.name) or RunFolder.of_space(space.name)
    opened = open_supernet(asked.supernet or beside, asked.data)
    space.require_hash(opened.space.hash, f"{opened.path}: its supernet")
    with progress_bar("refine") as on_progress:
        request, found = refined_request(request, MeasuredNetworks(opened), asked.refine or 0, path, on_progress)
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
