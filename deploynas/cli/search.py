"""`deploynas search`: the most accurate network within the budgets, or all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

import click

from deploynas.accuracy.shipped_estimators import SHIPPED, shipped_estimator
from deploynas.accuracy.training_free.registry import HNAS, NASI
from deploynas.cli import search_ensembles, search_estimated, search_hnas, search_nasi, search_rarts
from deploynas.cli.console import json_option, print_json, say
from deploynas.cli.options import out_option, supernet_help, with_goal_options, with_resource_options
from deploynas.cli.search_asked import Asked, refuse_options_of_others

if TYPE_CHECKING:
    from deploynas.search.result_file import SearchFile

OWNERS = {NASI: search_nasi.OPTIONS, HNAS: search_hnas.OPTIONS, search_rarts.RARTS: search_rarts.OPTIONS}
# the others search among the networks of an estimator
FINDERS = {NASI: search_nasi.find, HNAS: search_hnas.find, search_rarts.RARTS: search_rarts.find}


@click.command("search")
@click.option(
    "--estimator",
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
    help="exact, milp, bcfw, evolution or best-of; nasi, hnas and rarts, which need no estimator.",
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
    help=f"For `--refine`, hnas, rarts, ensembles. {supernet_help}  [for `--refine`: the estimator's, or runs/SPACE]",
)
@click.option("--data", help="For the measurements.  [default: what the supernet was trained on; for nasi, random]")
@search_nasi.with_nasi_options
@search_hnas.with_hnas_options
@search_rarts.with_rarts_options
@search_ensembles.with_ensemble_options
@click.option("--each", is_flag=True, help="The best network of each device instead of one for all.")
@click.option("--frontier", is_flag=True, help="Every optimal network of one table, fastest first.")
@click.option("--thin", type=click.IntRange(min=2), metavar="N", help="Of the frontier, those of N even budgets.")
@click.option("--dry-run", is_flag=True, help="Only what networks cost, and whether the limits can be met.")
@out_option("Write the result here, as JSON.")
@json_option
def command(**options: object) -> None:
    """Find the most accurate network within the budgets.

    With one table and no budget, the fastest network that is expected to be within one point of the best. With the
    default solver the answer is the proven optimum. Exit code 3: no network is within all limits; the message names
    the limit in the way.

    Without any training, the best of Once-for-all's ImageNet networks within 10 ms on this machine:

    \b
    deploynas profile --space ofa-mbv3 -o my.json
    deploynas search --estimator ofa-mbv3-imagenet --latency my.json:10
    """  # fmt: skip
    asked = Asked.of(options)
    refuse_options_of_others(asked, OWNERS)
    search_ensembles.refuse_idle(asked)
    finder = FINDERS.get(asked.solver, search_estimated.find)
    document = (search_ensembles.find if search_ensembles.is_asked(options) else finder)(asked)
    if document is not None:
        _hand_over(document, asked)


def _hand_over(document: SearchFile, asked: Asked) -> None:
    from deploynas.cli import search_tables

    if asked.as_json:
        print_json(document.model_dump(by_alias=True))
    elif document.ensemble:
        search_ensembles.show(document)
    else:
        search_tables.show(document)
    if asked.out:
        document.save(asked.out)
        say(f"wrote {asked.out}")
    _say_next(document, asked)


def _say_next(document: SearchFile, asked: Asked) -> None:
    """Fine-tuning, if there is a supernet to inherit from."""
    from deploynas.pipeline.run_folder import RunFolder

    if asked.out is None:
        say(f"next: {join(['deploynas', *sys.argv[1:], '--out', 'found.json'])}")
        return
    if document.ensemble:
        say(f"next: deploynas export {asked.out} --supernet {asked.supernet}")
        return
    if document.estimator is None:
        say(f"next: deploynas finetune {asked.out} --supernet {asked.supernet or 'RUN'}")
        return
    there = RunFolder.with_estimator(Path(document.estimator.path), document.the_space().name)
    shipped = shipped_estimator(document.estimator.path)
    if there is None and shipped and RunFolder(shipped.run).w_star.exists():
        there = RunFolder(shipped.run)
    if there:
        say(f"next: deploynas finetune {asked.out} --supernet {there.path}")
    elif shipped:
        say(f"next, for its weights: {shipped.import_command}, with the public checkpoint of that name")
        say(f"  then: deploynas finetune {asked.out} --supernet {shipped.run}")
