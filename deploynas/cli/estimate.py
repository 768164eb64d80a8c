"""`deploynas estimate`: what every depth and every block configuration is worth, from a trained supernet or results."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.accuracy.registry import SCORES, TRAINING_FREE
from deploynas.cli.console import json_option, print_json, progress_bar, say
from deploynas.cli.estimate_tables import show, show_results, show_training_free
from deploynas.cli.fourier_options import FOURIER_OPTIONS, fourier_of, with_fourier_options
from deploynas.cli.next_commands import search_command
from deploynas.cli.options import Values, estimation_of, out_option, supernet_help, with_estimation_options
from deploynas.cli.results_options import COLUMNS, CREDITS, RESULTS_OPTIONS, results_settings, with_results_options
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.accuracy.estimator_file import StoredEstimator


# by the names of their parameters
SUPERNET_OPTIONS = (
    "data",
    "folder",
    "sampling",
    "estimand",
    "score",
    "shrink",
    "passes",
    "target_se",
    "unseen",
    "fourier_rounds",
)
NOT_TRAINING_FREE = (
    "folder",
    "sampling",
    "estimand",
    "shrink",
    "target_se",
    *COLUMNS,
    "percent",
    "tolerance",
    *CREDITS,
)


@click.command("estimate")
@click.option("--supernet", type=click.Path(path_type=Path), metavar="RUN", help=supernet_help)
@click.option("--from", "results", type=click.Path(path_type=Path), metavar="RESULTS.csv",
              help="Instead of a supernet: networks and their accuracies, measured by anybody.")  # fmt: skip
@click.option("--data", help="Data set.  [default: what the supernet was trained on; `training-free`: else random]")
@out_option("Estimator file.  [default: RUN/estimator.json, or RESULTS.estimator.json]")
@with_estimation_options(training_free=True)
@click.option("--samples", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Where passes are kept.  [default: RUN/samples]")  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the paths; of held-out parts."
)
@with_fourier_options
@with_results_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    supernet: Path | None,
    results: Path | None,
    out: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Measure or learn what every decision is worth, and validate it on unseen networks.

    From a supernet: passes are kept, the same command continues, and more passes refine what is there. On several
    processes: `torchrun --nproc-per-node 2 -m deploynas estimate …`. From a file of results (`--from`, with `--space`):
    nothing is measured, and nothing needs PyTorch. From nothing (`--method training-free`, with `--space`): networks
    are ranked by what they are before any training; with `--supernet`, that is held against its accuracies.
    """
    if options["method"] == TRAINING_FREE:
        _refuse(context, NOT_TRAINING_FREE, "estimates of accuracy")
        if results is not None:
            raise InputError("`--from` has accuracies, and `--method training-free` goes without", hint="leave one out")
        _training_free(supernet, out, as_json, options)
        return
    if (supernet is None) == (results is None):
        raise InputError("an estimator comes from `--supernet RUN` or `--from RESULTS.csv`, one of them")
    if options["method"] == "fourier":
        options["fourier"] = fourier_of(options)
    else:
        _refuse(context, FOURIER_OPTIONS, "`--method fourier`")
    if supernet is not None:
        _refuse(context, RESULTS_OPTIONS, "`--from`")
        _from_supernet(supernet, out, as_json, options)
    elif results is not None:
        _refuse(context, SUPERNET_OPTIONS, "`--supernet`")
        _from_results(results, out, as_json, options)


def _refuse(context: click.Context, names: Collection[str], owner: str) -> None:
    """Options that would be ignored."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if parameter.name in names and given:
            raise InputError(f"`{parameter.opts[0]}` is for {owner}")


def _from_supernet(supernet: Path, out: Path | None, as_json: bool, options: Values) -> None:
    from deploynas.pipeline.estimate import KeptPasses, estimate_together

    settings, kept = estimation_of(options), KeptPasses(options["folder"], options["seed"])  # type: ignore[arg-type]
    data = options["data"] if isinstance(options["data"], str) else None
    if os.environ.get("RANK", "0") != "0":
        estimate_together(supernet, data, settings, out, kept)
        return
    with progress_bar("estimate") as on_progress:
        saved = estimate_together(supernet, data, settings, out, kept, on_progress)
    assert saved is not None, "the first process has the estimate"
    found, estimator = saved.estimate, saved.estimate.estimator
    if as_json:
        _print_json(saved.path, estimator)
    else:
        show(found)
    if settings.target_se is not None and not found.reached(settings.target_se):
        say(
            f"the largest standard error is {found.largest_se:.5f} after {found.passes} passes, not "
            f"{settings.target_se:g}: more passes help as long as it falls, then only more images do"
        )
    if "decided" in estimator.provenance:
        say(f"the rounds decided on {estimator.provenance['decided']}")
    say(f"wrote {saved.path}; passes are kept in {saved.samples}")
    _say_next(saved.path, estimator, settings.method)


def _from_results(results: Path, out: Path | None, as_json: bool, options: Values) -> None:
    from deploynas.accuracy.registry import RESULTS_METHODS
    from deploynas.pipeline.results import estimate_from_results

    method, space, seed = str(options["method"]), options["space_name"], options["seed"]
    if not isinstance(space, str):
        raise InputError("`--from` needs the space of its networks", hint="`--space ofa-mbv3`, or a YAML file of yours")
    if method not in RESULTS_METHODS:
        raise InputError(f"`{method}` is measured in a supernet", hint=f"one of {', '.join(RESULTS_METHODS)}")
    settings = results_settings(options, method, int(str(seed)), options.get("fourier"))  # type: ignore[arg-type]
    path = out or results.with_suffix(".estimator.json")
    if path.exists() and results.exists() and path.samefile(results):
        raise InputError(f"{path} holds the results, and would be overwritten", hint="another `--out`")
    with progress_bar("estimate") as on_progress:
        estimator = estimate_from_results(results, space, settings, path, on_progress)
    if as_json:
        _print_json(path, estimator)
    else:
        show_results(estimator)
    say(f"wrote {path}")
    _say_next(path, estimator, method)


def _training_free(supernet: Path | None, out: Path | None, as_json: bool, options: Values) -> None:
    from deploynas.accuracy.training_free.registry import DEFAULT_SCORE
    from deploynas.pipeline.supernet import open_supernet
    from deploynas.pipeline.training_free import RANDOM, TrainingFreeOrder, TrainingFreeSettings, rank_training_free
    from deploynas.space import Space

    name, data, asked = options["space_name"], str(options["data"] or RANDOM), options["score"]
    passes = options["passes"] if isinstance(options["passes"], int) else None
    settings = TrainingFreeSettings(
        DEFAULT_SCORE if asked == SCORES[0] else str(asked), passes, int(str(options["seed"]))
    )
    if supernet is None:
        if not isinstance(name, str):
            raise InputError("`--method training-free` needs a space", hint="`--space fashion`, or a file of yours")
        order = TrainingFreeOrder(Space.load(name), data, settings)
    else:
        opened = open_supernet(supernet, None if data == RANDOM else data)
        if isinstance(name, str):
            Space.load(name).require_hash(opened.space.hash, f"{supernet}: its supernet")
        images = RANDOM if options["data"] == RANDOM else opened.data
        order = TrainingFreeOrder(opened.space, images, settings, opened, int(str(options["unseen"])))
    path = out or Path(f"{order.space.name}.{settings.score}.estimator.json")
    with progress_bar("estimate") as on_progress:
        estimator = rank_training_free(order, path, on_progress)
    if as_json:
        _print_json(path, estimator)
    else:
        show_training_free(estimator)
    say(f"wrote {path}")
    say(f"next: {search_command(path, estimator.space)}")


def _print_json(path: Path, estimator: StoredEstimator) -> None:
    validation = estimator.validation.model_dump() if estimator.validation else None
    results = {"results": estimator.results.model_dump()} if estimator.results else {}
    print_json({"estimator": str(path), **estimator.provenance, **results, "validation": validation})


def _say_next(path: Path, estimator: StoredEstimator, method: str) -> None:
    explained = method in ("indexed", "contributions", "bilinear")
    say(f"next: {f'deploynas explain {path}' if explained else search_command(path, estimator.space)}")
