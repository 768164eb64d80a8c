"""`deploynas search`: the most accurate network within the budgets, or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploynas.cli.console import json_option, print_json, progress_bar, say
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from deploynas.accuracy.estimator_file import EstimatorValidation, StoredEstimator
    from deploynas.search.problem import Limit
    from deploynas.search.result import SearchResult
    from deploynas.search.result_file import FrontierRecord, NetworkRecord, SearchFile
    from deploynas.space import Space

RESOURCE_OPTIONS = {
    "max_params": "params",
    "max_macs": "macs",
    "max_size_bytes": "size_bytes",
    "max_peak_memory_bytes": "peak_memory_bytes",
}


def with_resource_options(function: Any) -> Any:
    """The limits besides latency; `resources_of` reads them."""
    helps = {
        "--max-peak-memory-bytes": "At most this many bytes of activations at once.",
        "--max-size-bytes": "At most this many bytes of fp32 weights.",
        "--max-macs": "At most this many multiply-accumulates.",
        "--max-params": "At most this many parameters.",
    }
    for name, text in helps.items():
        function = click.option(name, type=float, help=text)(function)
    return function


def resources_of(options: dict[str, Any]) -> list[Limit]:
    """What the options of `with_resource_options` ask for; takes them out of `options`."""
    from deploynas.search.problem import Limit

    asked = {resource: options.pop(option) for option, resource in RESOURCE_OPTIONS.items()}
    return [Limit(resource, value) for resource, value in asked.items() if value is not None]


@dataclass(frozen=True)
class Request:
    """What the options ask for, with the files read."""

    space: Space
    estimator: StoredEstimator
    estimator_path: Path
    tables: list[tuple[Path, Any, float | None]]  # path, LatencyTable, budget in ms
    resources: list[Limit]
    solver: str
    top: int | None
    seed: int

    def devices(self) -> list[Limit]:
        from deploynas.search.problem import Limit

        for path, _, budget in self.tables:
            if budget is None:
                raise InputError(f"`--latency {path}` has no budget", hint=f"`--latency {path}:10` for 10 ms")
        return [Limit(table, budget) for _, table, budget in self.tables if budget is not None]


@click.command("search")
@click.option(
    "--estimator",
    "estimator_path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="What every decision is worth, from `estimate`.",
)
@click.option(
    "--latency",
    multiple=True,
    metavar="TABLE[:MS]",
    help="A latency table from `profile` and its budget in ms. Several: one network for all devices.",
)
@click.option("--max-latency-ms", type=float, help="The budget, when one table is given without.")
@with_resource_options
@click.option("--space", "space_name", metavar="NAME|FILE", help="By default the space that the estimator embeds.")
@click.option("--solver", default="exact", show_default=True, help="exact, milp, bcfw, evolution or best-of.")
@click.option("--seed", type=int, default=0, show_default=True, help="For solvers that draw random numbers.")
@click.option("--top", type=click.IntRange(min=1), metavar="K", help="The K best networks, best first.")
@click.option(
    "--rerank",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Measure the K best in this supernet, batch norm recalibrated, and order them by that.",
)
@click.option("--data", help="For `--rerank`.  [default: what the supernet was trained on]")
@click.option("--each", is_flag=True, help="The best network of each device instead of one for all.")
@click.option("--frontier", is_flag=True, help="Every optimal network of one table, fastest first.")
@click.option("--thin", type=click.IntRange(min=2), metavar="N", help="Of the frontier, those of N even budgets.")
@click.option("--dry-run", is_flag=True, help="Only what networks cost, and whether the limits can be met.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the result here, as JSON.")
@json_option
def command(
    estimator_path: Path,
    latency: tuple[str, ...],
    max_latency_ms: float | None,
    space_name: str | None,
    solver: str,
    seed: int,
    top: int | None,
    rerank: Path | None,
    data: str | None,
    each: bool,
    frontier: bool,
    thin: int | None,
    dry_run: bool,
    out: Path | None,
    as_json: bool,
    **options: float | None,
) -> None:
    """Find the most accurate network within the budgets.

    With the default solver the answer is the proven optimum. Exit code 3: no network is within all
    limits; the message names the limit in the way.
    """  # fmt: skip
    _refuse_contradictions(top, each, frontier, thin, dry_run)
    if rerank is not None and top is None:
        raise InputError("`--rerank` orders the networks of `--top K`", hint="like `--top 20 --rerank runs/fashion`")
    request = _read(estimator_path, latency, max_latency_ms, space_name, resources_of(options), solver, top, seed)
    if dry_run:
        _dry_run(request, as_json)
        return
    if frontier:
        document = _frontier(request, thin)
    elif each:
        document = _each(request)
    else:
        document = _shared(request)
    if request.estimator.validation:
        _expect(document, request.estimator.validation)
    if rerank:
        _rerank(document, rerank, data)
    if out:
        document.save(out)
    _show(document, as_json)
    if out:
        say(f"wrote {out}")
        if document.networks:
            say(f"next: deploynas finetune {out} --supernet RUN/w_star.safetensors")


def _refuse_contradictions(top: int | None, each: bool, frontier: bool, thin: int | None, dry_run: bool) -> None:
    asked = {"--top": top is not None, "--each": each, "--frontier": frontier, "--dry-run": dry_run}
    given = [name for name, is_asked in asked.items() if is_asked]
    if len(given) > 1:
        raise InputError(f"{' and '.join(f'`{name}`' for name in given)} ask for different answers", hint="give one")
    if thin is not None and not frontier:
        raise InputError("`--thin` is for `--frontier`")


def _read(
    estimator_path: Path,
    latency: tuple[str, ...],
    max_latency_ms: float | None,
    space_name: str | None,
    resources: list[Limit],
    solver: str,
    top: int | None,
    seed: int,
) -> Request:
    from deploynas.accuracy.estimator_file import load_estimator
    from deploynas.latency.table import LatencyTable
    from deploynas.space import Space

    tables = [_split_budget(text) for text in latency]
    if max_latency_ms is not None:
        if len(tables) != 1 or tables[0][1] is not None:
            raise InputError(
                "`--max-latency-ms` is for one `--latency TABLE` without a budget of its own",
                hint="give every table its budget: `--latency TABLE:MS`",
            )
        tables = [(tables[0][0], max_latency_ms)]
    loaded = [(path, LatencyTable.load(path), budget) for path, budget in tables]
    if not loaded and not resources:
        raise InputError("nothing limits the network", hint="`--latency TABLE:MS`, `--max-params N`, ...")
    estimator = load_estimator(estimator_path)
    space = Space.load(space_name) if space_name else estimator.space
    return Request(space, estimator, estimator_path, loaded, resources, solver, top, seed)


def _split_budget(text: str) -> tuple[Path, float | None]:
    """`table.json:10` or `table.json`; a colon may also belong to the path."""
    path, colon, budget = text.rpartition(":")
    if not colon or Path(text).exists():
        return Path(text), None
    try:
        return Path(path), float(budget)
    except ValueError:
        raise InputError(
            f"`--latency {text}`: `{budget}` is not a budget in milliseconds",
            hint="like `--latency table.json:10`",
        ) from None


def _shared(request: Request) -> SearchFile:
    """One network for all limits, or the best few; with several devices also what each loses by sharing."""
    from deploynas.search.result import one_each

    devices = request.devices()
    results = _solve(request, devices)
    each: tuple[SearchResult, ...] = ()
    if len(devices) > 1:
        each = one_each(request.space, request.estimator, devices, request.resources, request.solver, request.seed)
    return _document(request, results, each, results[0])


def _each(request: Request) -> SearchFile:
    from deploynas.search.result import one_each

    devices = request.devices()
    if len(devices) < 2:
        raise InputError("`--each` needs several devices", hint="`--latency a.json:10 --latency b.json:25 --each`")
    each = one_each(request.space, request.estimator, devices, request.resources, request.solver, request.seed)
    try:
        shared = _solve(request, devices)[0]
    except GateError as error:
        say(f"no network for all devices: {error.message}")
        shared = None
    return _document(request, [], each, shared)


def _solve(request: Request, devices: list[Limit]) -> list[SearchResult]:
    from deploynas.search import search

    with progress_bar(f"search ({request.solver})") as on_progress:
        return search(
            request.space,
            request.estimator,
            [*devices, *request.resources],
            request.solver,
            top=request.top or 1,
            seed=request.seed,
            on_progress=on_progress,
        )


def _frontier(request: Request, thin: int | None) -> SearchFile:
    from deploynas.search.feasibility import require_feasible
    from deploynas.search.frontier import frontier
    from deploynas.search.problem import Limit, Problem
    from deploynas.search.result_file import frontier_records

    if len(request.tables) != 1:
        raise InputError(f"`--frontier` needs one `--latency`, got {len(request.tables)}")
    _, table, budget = request.tables[0]
    limits = request.resources if budget is None else [*request.resources, Limit(table, budget)]
    require_feasible(Problem.build(request.space, request.estimator, limits))
    points = frontier(request.space, request.estimator, table, request.resources)
    if budget is not None:
        points = points[: int((points.latencies_ms <= budget).sum())]
    document = _document(request, [], (), None)
    document.frontier = frontier_records(points.thin(thin) if thin else points)
    thinned = f", those of {thin} even budgets shown" if thin else ""
    size = request.space.size()  # may be too large for a float
    say(f"{len(points)} optimal networks of about 1e{len(str(size)) - 1}{thinned}")
    return document


def _document(
    request: Request, results: list[SearchResult], each: tuple[SearchResult, ...], shared: SearchResult | None
) -> SearchFile:
    from deploynas import __version__
    from deploynas.files import now
    from deploynas.search.result_file import SearchFile, input_record, network_record, sharing_records

    validation = request.estimator.validation
    return SearchFile(
        space=request.space.describe(),
        space_hash=request.space.hash,
        networks=[network_record(result) for result in results],
        each=sharing_records(each, shared),
        estimator=input_record(request.estimator_path),
        estimator_validation=validation.model_dump() if validation else None,
        tables=[input_record(path) for path, _, _ in request.tables],
        provenance={
            "created": now(),
            "deploynas": __version__,
            "solver": request.solver,
            "seed": request.seed,
        },
    )


def _expect(document: SearchFile, validation: EstimatorValidation) -> None:
    """Write beside every prediction what it is worth in measured accuracy, where the estimator knows."""
    records: list[NetworkRecord | FrontierRecord] = [*document.networks, *document.frontier]
    for record in [*records, *(shared.own for shared in document.each)]:
        if record.accuracy is not None:
            record.expected_accuracy = validation.expected(record.accuracy)


def _rerank(document: SearchFile, supernet: Path, data: str | None) -> None:
    """Order the networks by their measured one-shot accuracy."""
    from deploynas.cli.supernet_input import open_one_shot

    opened = open_one_shot(supernet, data)
    document.the_space().require_hash(opened.measure.supernet.space.hash, f"{supernet}: its supernet")
    with progress_bar("measure") as on_progress:
        for i, (record, architecture) in enumerate(zip(document.networks, document.architectures(), strict=True)):
            record.measured_accuracy, record.measured_accuracy_se = opened.accuracy_alone(architecture)
            on_progress((i + 1) / len(document.networks), f"network {i + 1}")
    document.networks.sort(key=lambda record: -(record.measured_accuracy or 0.0))
    document.provenance["reranked_with"] = opened.about


def _show(document: SearchFile, as_json: bool) -> None:
    from deploynas.cli import search_tables

    if as_json:
        print_json(document.model_dump(by_alias=True))
        return
    search_tables.show(document)


def _dry_run(request: Request, as_json: bool) -> None:
    from deploynas.cli import search_tables
    from deploynas.search.feasibility import cost_ranges, require_feasible
    from deploynas.search.problem import Problem

    problem = Problem.build(request.space, request.estimator, [*request.devices(), *request.resources])
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
