"""`deploynas run`: the whole path with one command, from nothing to bundles with reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploynas.cli.console import json_option, progress_bar, say
from deploynas.cli.estimate import plan_of, with_plan_options
from deploynas.cli.export import show, split_budget, wishes_of, with_bundle_options
from deploynas.cli.search import resources_of, with_resource_options
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from deploynas.accuracy.estimation import EstimationSettings
    from deploynas.report.document import ReportFile
    from deploynas.search.problem import Limit
    from deploynas.shipping.delivery import Wishes
    from deploynas.shipping.sources import KnownTable
    from deploynas.space import Architecture, Space
    from deploynas.training.recipe import Recipe


REPORT_NETWORKS = 16  # random sub-networks of w*: the estimate that follows measures more of them


@dataclass(frozen=True)
class Run:
    """The folder of a run, and what its steps are told."""

    out: Path
    space: Space
    data: str
    recipe: Recipe
    teacher: str | None
    plan: EstimationSettings
    resources: tuple[Limit, ...]
    solver: str
    wishes: Wishes
    force: bool

    @property
    def supernet(self) -> Path:
        return self.out / "supernet" / "w_star.safetensors"

    @property
    def estimator(self) -> Path:
        return self.out / "estimator.json"


@click.command("run")
@click.option(
    "--device", "devices", multiple=True, metavar="DEVICE[:MS]", help="With its budget; repeatable.  [default: cpu-1t]"
)
@click.option("--max-latency-ms", type=float, help="The budget.  [default: half-way from the fastest to the heaviest]")
@click.option("--space", "space_name", default="fashion", show_default=True, help="Preset, or a YAML file.")
@click.option("--data", default="fashion-mini", show_default=True, help="As for `train`.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder.  [default: runs/SPACE]")
@click.option("--recipe", "recipe_name", help="Preset or YAML file.  [default: named as the space, or fashion]")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change the recipe, like w_h.epochs=3.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Shorthand for --set seed=…")
@click.option("--teacher", metavar="FILE|timm:NAME[:WEIGHTS]", help="For fine-tuning.  [default: w_h]")
@with_plan_options(passes=16, unseen=50)
@with_resource_options
@click.option("--solver", default="exact", show_default=True, help="exact, milp, bcfw, evolution or best-of.")
@click.option("--force", is_flag=True, help="Do every step again.")
@with_bundle_options
@json_option
def command(
    devices: tuple[str, ...],
    max_latency_ms: float | None,
    space_name: str,
    data: str,
    out: Path | None,
    recipe_name: str | None,
    changes: tuple[str, ...],
    seed: int | None,
    teacher: str | None,
    solver: str,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Profile, train, estimate, search, fine-tune and export, with no options needed.

    The same command goes on where it stopped, and skips what is done. A further --device costs only its own profile,
    search, fine-tuning and export.
    """
    from deploynas.report.index import write_index
    from deploynas.search.solver import load_solver
    from deploynas.space import Space
    from deploynas.training.recipe import PRESETS, Recipe

    space = Space.load(space_name)
    preset = space.name if space.name in PRESETS else "fashion"
    seeds = [f"seed={seed}"] if seed is not None else []
    fewer = [] if recipe_name else [f"report_networks={REPORT_NETWORKS}"]
    recipe = Recipe.load(recipe_name or preset, [*fewer, *changes, *seeds])
    out = out or Path("runs") / space.name
    plan, resources = plan_of(options), tuple(resources_of(options))
    load_solver(solver)  # a mistake is better found before minutes of training than after
    run = Run(out, space, data, recipe, teacher, plan, resources, solver, wishes_of(options), force)
    wanted = _wanted(devices, max_latency_ms)
    started = time.monotonic()
    tables = {name: _profile(run, name) for name, _ in wanted}
    _train(run)
    _estimate(run)
    reports, missed = list[Any](), []
    for name, budget in wanted:
        try:
            reports.append(_ship(run, tables[name], name, budget))
        except GateError as error:
            missed.append(f"{name}: {error.message}")
            say(f"error: {missed[-1]}")
    index = write_index(out / "bundles") if reports else None
    show(reports, as_json)
    say(f"done in {time.monotonic() - started:.0f} s")
    for report in reports:
        say(f"report: {out / 'bundles' / report.device['name'] / 'report.html'}")
    if len(reports) > 1:
        say(f"all of them: {index}")
    if missed:
        raise GateError("; ".join(missed), hint="a larger budget: `--device DEVICE:MS`")


def _wanted(devices: Sequence[str], max_latency_ms: float | None) -> list[tuple[str, float | None]]:
    wanted = [split_budget(text) for text in devices] or [("cpu-1t", None)]
    if len({name for name, _ in wanted}) < len(wanted):
        raise InputError("a device is named twice")
    if max_latency_ms is None:
        return wanted
    if len(wanted) > 1 or wanted[0][1] is not None:
        raise InputError(
            "`--max-latency-ms` is for one device without a budget of its own", hint="`--device DEVICE:MS` for each"
        )
    return [(wanted[0][0], max_latency_ms)]


def _profile(run: Run, device_name: str) -> Path:
    from deploynas.cli.profile import existing, warn_of
    from deploynas.device import Device
    from deploynas.latency.profile import profile

    device = Device.load(device_name)
    path = run.out / device.name / "table.json"
    if path.exists() and not run.force:
        existing(path, device.hash, run.space.hash)
        say(f"profile: {path} is there")
        return path
    with progress_bar(f"profile {device.name}") as on_progress:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = path.with_suffix(".partial.jsonl")
        table = profile(device, run.space, journal=journal, on_progress=on_progress)
        table.save(path)
        journal.unlink(missing_ok=True)
    say(f"profile: wrote {path}")
    warn_of(table, f"delete {path} to measure again")
    return path


def _train(run: Run) -> None:
    from deploynas.training.oneshot import train_supernet

    with progress_bar(f"train {run.space.name}") as on_progress:
        result = train_supernet(run.space, run.data, run.supernet.parent, run.recipe, run.force, on_progress)
    networks = result.subnetworks
    say(
        f"train: the heaviest network {100 * result.w_h_accuracy:.2f} %, {networks.networks} random sub-networks "
        f"{100 * networks.mean:.2f} ± {100 * networks.std:.2f} %"
    )


def _estimate(run: Run) -> None:
    from deploynas import __version__
    from deploynas.accuracy.estimation import estimate
    from deploynas.accuracy.estimator_file import load_estimator
    from deploynas.accuracy.samples import Samples
    from deploynas.cli.supernet_input import open_one_shot
    from deploynas.files import now

    opened = open_one_shot(run.supernet, run.data)
    asked = asdict(run.plan)
    if run.estimator.exists() and not run.force:
        provenance = load_estimator(run.estimator).provenance
        if provenance.get("supernet") == opened.about and provenance.get("asked") == asked:
            say(f"estimate: {run.estimator} is there")
            return
    samples = Samples(opened.measure.supernet.space, opened.measure, opened.samples_folder(None), 0)
    made_by = {"created": now(), "deploynas": __version__, "supernet": opened.about, "asked": asked}
    with progress_bar("estimate") as on_progress:
        found = estimate(samples, run.plan, made_by, on_progress)
    found.estimator.save(run.estimator)
    validation = found.estimator.validation
    tau = f", Kendall tau {validation.kendall_tau:.2f} on {validation.networks} unseen networks" if validation else ""
    say(f"estimate: {found.passes} passes{tau}")


def _ship(run: Run, table_path: Path, device_name: str, budget: float | None) -> ReportFile:
    from deploynas.device import Device
    from deploynas.latency.table import LatencyTable
    from deploynas.shipping.candidates import Candidates, inheriting
    from deploynas.shipping.delivery import deliver, delivered
    from deploynas.shipping.sources import KnownTable, Sources

    device, table = Device.load(device_name), LatencyTable.load(table_path)
    budget = budget or table.half_way()
    known = KnownTable(table_path, table, budget)
    search_path = table_path.with_name("search.json")
    sources = Sources(run.supernet, run.estimator, search_path, (known,), run.resources, run.teacher)
    bundle = run.out / "bundles" / device.name
    included = {"seed", "precision", "augmentation", "finetune", "recalibration_images"}
    settings = run.recipe.model_dump(include=included, mode="json")
    asked = {**settings, "teacher": run.teacher, **_question(run)}
    if not run.force and (done := delivered(bundle, sources, known, budget, run.wishes, asked)):
        say(f"export: {bundle} is there")
        return done
    with progress_bar(f"fine-tune and export for {device.name}") as on_progress:
        fine_tune = inheriting(sources, run.data, table_path.parent / "networks", settings, on_progress)
        candidates = Candidates(
            device, run.space, sources, known, fine_tune, solver=run.solver, on_progress=on_progress
        )
        candidates.given = fine_tune(_search(run, candidates, known, budget))
        return deliver(candidates, budget, run.data, bundle, run.wishes, on_progress, asked).report


def _search(run: Run, candidates: Any, known: KnownTable, budget: float) -> Architecture:
    """The network that was found before for the same question, or a new one, measured whole."""
    from deploynas import __version__
    from deploynas.files import now
    from deploynas.search.result_file import SearchFile, input_record, network_record

    sources = candidates.sources
    inputs = (input_record(sources.estimator), [input_record(known.path)])
    if sources.search.exists() and not run.force:
        file = SearchFile.load(sources.search)
        if (file.estimator, file.tables, file.provenance.get("question")) == (*inputs, _question(run, budget)):
            return run.space.architecture(file.networks[0].choices)
    result = candidates.solve(budget)
    rounds = [(probe.target_ms, probe.predicted_ms, probe.measured_ms) for probe in candidates.probes]
    SearchFile(
        space=run.space.describe(),
        space_hash=run.space.hash,
        networks=[network_record(result)],
        estimator=inputs[0],
        tables=inputs[1],
        provenance={
            "created": now(),
            "deploynas": __version__,
            "question": _question(run, budget),
            "measured_whole": rounds,
        },
    ).save(sources.search)
    # the estimate ranks networks; at the best ones it overshoots, so only what is measured later is quoted
    say(f"search: the best-ranked network is predicted at {result.latency_ms:.4g} of {budget:.4g} ms")
    return result.architecture


def _question(run: Run, budget: float | None = None) -> dict[str, Any]:
    """What decides the search's answer, besides the files it reads."""
    limits = {limit.name: limit.budget for limit in run.resources}
    return {"solver": run.solver, "limits": limits} | ({"budget_ms": budget} if budget else {})
