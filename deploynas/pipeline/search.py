"""From estimator and tables to the file of a search: one network for all limits, one for each device, or the frontier.

Nothing here needs torch: a search runs on a target machine too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploynas import __version__, search
from deploynas.accuracy.estimator_file import StoredEstimator, load_estimator
from deploynas.errors import GateError, InputError
from deploynas.files import now
from deploynas.latency.table import LatencyTable
from deploynas.pipeline.limits import require_budget
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
from deploynas.space import Space


@dataclass(frozen=True)
class BudgetedTable:
    """A latency table as `--latency` gives it."""

    path: Path
    table: LatencyTable
    budget_ms: float | None

    @classmethod
    def parse(cls, text: str, budget_ms: float | None = None) -> BudgetedTable:
        """`table.json:10` or `table.json`; a colon may also belong to the path."""
        place, colon, given = text.rpartition(":")
        if not colon or Path(text).exists():
            return cls(Path(text), LatencyTable.load(text), budget_ms)
        if budget_ms is not None:
            raise InputError(
                "`--max-latency-ms` is for one `--latency TABLE` without a budget of its own",
                hint="give every table its budget: `--latency TABLE:MS`",
            )
        try:
            budget = require_budget(float(given), f"the budget of `--latency {text}`")
        except ValueError:
            raise InputError(
                f"`--latency {text}`: `{given}` is not a budget in milliseconds",
                hint="like `--latency table.json:10`",
            ) from None
        return cls(Path(place), LatencyTable.load(place), budget)


@dataclass(frozen=True)
class SolverChoice:
    name: str = "exact"
    seed: int = 0  # for solvers that draw random numbers
    top: int = 1  # how many networks, best first


@dataclass(frozen=True)
class SearchRequest:
    """A question to the search, with the files it is about."""

    space: Space
    estimator: StoredEstimator
    estimator_path: Path
    tables: Sequence[BudgetedTable]
    resources: Sequence[Limit]
    solver: SolverChoice = field(default_factory=SolverChoice)

    @classmethod
    def open(
        cls,
        estimator_path: Path,
        tables: Sequence[BudgetedTable],
        resources: Sequence[Limit],
        solver: SolverChoice,
        space_name: str | None = None,
    ) -> SearchRequest:
        if not tables and not resources:
            raise InputError("nothing limits the network", hint="`--latency TABLE:MS`, `--max-params N`, ...")
        estimator = load_estimator(estimator_path)
        space = Space.load(space_name) if space_name else estimator.space
        return cls(space, estimator, estimator_path, tables, resources, solver)

    def devices(self) -> list[Limit]:
        """The latency limits; every table must have its budget."""
        for table in self.tables:
            if table.budget_ms is None:
                raise InputError(
                    f"`--latency {table.path}` has no budget", hint=f"`--latency {table.path}:10` for 10 ms"
                )
        return [Limit(table.table, table.budget_ms) for table in self.tables if table.budget_ms is not None]

    def problem(self) -> Problem:
        return Problem.build(self.space, self.estimator, [*self.devices(), *self.resources])


@dataclass(frozen=True)
class SearchAnswer:
    document: SearchFile
    remarks: tuple[str, ...] = ()  # for people


def shared_network(request: SearchRequest, on_progress: OnProgress = silent) -> SearchAnswer:
    """One network for all limits, or the best few; with several devices also what each loses by sharing."""
    devices = request.devices()
    results = _solve(request, devices, on_progress)
    each = _one_each(request, devices) if len(devices) > 1 else ()
    return _answer(request, results, each, results[0])


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
    (given,) = request.tables
    limits = [*request.resources, *([] if given.budget_ms is None else [Limit(given.table, given.budget_ms)])]
    require_feasible(Problem.build(request.space, request.estimator, limits))
    points = frontier(request.space, request.estimator, given.table, request.resources)
    if given.budget_ms is not None:
        points = points[: int((points.latencies_ms <= given.budget_ms).sum())]
    thinned = f", those of {thin} even budgets shown" if thin else ""
    remark = f"{len(points)} optimal networks of {how_many(request.space.size())}{thinned}"
    answer = _answer(request, [], (), None, remark)
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
        estimator=input_record(request.estimator_path),
        estimator_validation=validation.model_dump() if validation else None,
        tables=[input_record(table.path) for table in request.tables],
        provenance={
            "created": now(),
            "deploynas": __version__,
            "solver": request.solver.name,
            "seed": request.solver.seed,
        },
    )
    return SearchAnswer(document, remarks)
