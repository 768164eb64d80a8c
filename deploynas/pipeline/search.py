"""From estimator and tables to the file of a search: one network for all limits, one for each device, or the frontier.

Nothing here needs torch: a search runs on a target machine too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploynas import __version__, search
from deploynas.accuracy.shipped_estimators import find_estimator
from deploynas.errors import GateError, InputError
from deploynas.files import now
from deploynas.pipeline.budget import SettledBudget, plain_budget, settle
from deploynas.pipeline.goal import AtMost, Goal, NearBest
from deploynas.pipeline.search_request import SearchRequest
from deploynas.pipeline.tradeoff import Tradeoff, has_frontier
from deploynas.progress import OnProgress, silent
from deploynas.report.numbers import how_many
from deploynas.search.feasibility import require_feasible
from deploynas.search.frontier import frontier
from deploynas.search.problem import Limit, Problem
from deploynas.search.result import SearchResult, one_each
from deploynas.search.result_file import (
    SearchFile,
    frontier_record,
    input_record,
    network_record,
    sharing_records,
)


@dataclass(frozen=True)
class SearchAnswer:
    document: SearchFile
    remarks: tuple[str, ...] = ()  # for people


def shared_network(request: SearchRequest, on_progress: OnProgress = silent) -> SearchAnswer:
    """One network for all limits, or the best few; with several devices also what each loses by sharing."""
    budget = budget_of_request(request)
    if budget:
        request = request.at_most(budget.asked_ms)
    devices = request.devices()
    results = _solve(request, devices, on_progress)
    each = _one_each(request, devices) if len(devices) > 1 else ()
    answer = _answer(request, results, each, results[0])
    if budget is None:
        return answer
    state_budget(answer.document, request, budget)
    return SearchAnswer(answer.document, (*answer.remarks, budget.reason, *budget.remarks))


def budget_of_request(request: SearchRequest) -> SettledBudget | None:
    """What the goal on the only table comes to; None if there is no table, or several."""
    goal = request.wanted
    if goal is None:
        return None
    if request.estimator.scale == "ordinal":
        return plain_budget(_given(goal, request).latency_ms)  # how much worse a faster network is nobody knows
    if isinstance(goal, AtMost) and not has_frontier(
        Problem.build(request.space, request.estimator, request.resources)
    ):
        return plain_budget(goal.latency_ms)  # what else could be had would cost many searches
    return settle(goal, Tradeoff.build(request), given=request.goal is not None)


def _given(goal: Goal, request: SearchRequest) -> AtMost:
    """The budget itself: a goal about accuracy means nothing to an estimator that only ranks."""
    if isinstance(goal, AtMost):
        return goal
    raise InputError(
        f"{request.estimator_path} only ranks networks, so a budget does not follow from an accuracy",
        hint=f"give one: `--latency {request.tables[0].path}:MS`; `--frontier` shows what latencies there are",
    )


def state_budget(document: SearchFile, request: SearchRequest, budget: SettledBudget) -> None:
    """Write into a document of one device what its networks are held to, and why."""
    document.budget_reason = ". ".join([budget.reason, *budget.remarks])
    document.as_good = frontier_record(budget.as_good, request.estimator) if budget.as_good else None
    for network in document.networks:
        (latency,) = (use for use in network.limits if use.unit == "ms")
        latency.budget = budget.promised_ms


def network_for_each(request: SearchRequest, on_progress: OnProgress = silent) -> SearchAnswer:
    """The best network of each device, and what it would lose by sharing one with the others."""
    devices = request.devices()
    if len(devices) < 2:
        raise InputError("`--each` needs several devices", hint="`--latency a.json:10 --latency b.json:25 --each`")
    each = _one_each(request, devices)
    try:
        return _answer(request, [], each, _solve(request, devices, on_progress)[0])
    except GateError as error:
        return _answer(request, [], each, None, f"no network for all devices: {error.message}")


def whole_frontier(request: SearchRequest, thin: int | None = None) -> SearchAnswer:
    """Every optimal network of one table, fastest first, up to its budget if it has one."""
    if len(request.tables) != 1:
        raise InputError(f"`--frontier` needs one `--latency`, got {len(request.tables)}")
    if request.goal is not None and not isinstance(request.goal, AtMost):
        raise InputError("`--frontier` shows the networks of all accuracies", hint="leave out the one that is wanted")
    (given,), goal = request.tables, request.wanted
    limits = [*request.resources, *([Limit(given.table, goal.latency_ms)] if isinstance(goal, AtMost) else [])]
    require_feasible(Problem.build(request.space, request.estimator, limits))
    points = frontier(request.space, request.estimator, given.table, request.resources)
    if isinstance(goal, AtMost):
        points = points[: int((points.latencies_ms <= goal.latency_ms).sum())]
    thinned = f", those of {thin} even budgets shown" if thin else ""
    remarks = [f"{len(points)} optimal networks of {how_many(request.space.size())}{thinned}"]
    if isinstance(goal, NearBest) and request.estimator.scale == "accuracy":
        remarks.append(settle(goal, Tradeoff.build(request)).reason)
    answer = _answer(request, [], (), None, *remarks)
    shown = points.thin(thin) if thin else points
    answer.document.frontier = [frontier_record(point, request.estimator) for point in shown]
    return answer


def _solve(request: SearchRequest, devices: Sequence[Limit], on_progress: OnProgress) -> list[SearchResult]:
    solver, limits = request.solver, [*devices, *request.resources]
    return search(
        request.space,
        request.estimator,
        limits,
        solver.name,
        top=solver.top,
        seed=solver.seed,
        on_progress=on_progress,
    )


def _one_each(request: SearchRequest, devices: Sequence[Limit]) -> tuple[SearchResult, ...]:
    solver = request.solver
    return one_each(request.space, request.estimator, devices, request.resources, solver.name, solver.seed)


def _answer(
    request: SearchRequest,
    results: Sequence[SearchResult],
    each: Sequence[SearchResult],
    shared: SearchResult | None,
    *remarks: str,
) -> SearchAnswer:
    validation = request.estimator.validation
    document = SearchFile(
        space=request.space.describe(),
        space_hash=request.space.hash,
        networks=[network_record(result) for result in results],
        each=sharing_records(each, shared),
        estimator=input_record(request.estimator_path, find_estimator(request.estimator_path)),
        estimator_validation=validation.model_dump() if validation else None,
        estimator_results=request.estimator.results,
        ranked_by=request.estimator.ranked_by,
        tables=[input_record(table.path) for table in request.tables],
        provenance={
            "created": now(),
            "deploynas": __version__,
            "solver": request.solver.name,
            "seed": request.solver.seed,
        },
    )
    return SearchAnswer(document, remarks)
