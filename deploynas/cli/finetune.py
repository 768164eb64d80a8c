"""`deploynas finetune`: the network that was found, with the weights it inherits, taught by the heaviest one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say, seconds_since_start
from deploynas.cli.options import out_option, recipe_changes, supernet_help, with_recipe_options
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.training.finetune import FinetuneResult


@click.command("finetune")
@click.argument("search", type=click.Path(path_type=Path), required=False, metavar="[SEARCH.json]")
@click.option("--pick", type=click.IntRange(min=1), default=1, show_default=True, help="Which of the file's networks.")
@click.option("--architecture", "text", help="A network in timm's notation, instead of a search result.")
@click.option("--supernet", type=click.Path(path_type=Path), metavar="RUN",
              help=f"{supernet_help}  [default: that of the search's estimator, or runs/SPACE]")  # fmt: skip
@click.option("--data", help="As for `train`.  [default: what the supernet was trained on]")
@click.option("--teacher", metavar="FILE|timm:NAME[:WEIGHTS]", help="Who teaches.  [default: w_h beside the supernet]")
@out_option("Folder.  [default: beside SEARCH.json]", folder=True)
@with_recipe_options
@click.option("--from-scratch", is_flag=True, help="Random weights instead of inherited ones, for comparison.")
@click.option("--force", is_flag=True, help="Start over instead of continuing what is in the folder.")
@json_option
def command(
    search: Path | None,
    pick: int,
    text: str | None,
    supernet: Path | None,
    data: str | None,
    teacher: str | None,
    out: Path | None,
    recipe_name: str | None,
    changes: tuple[str, ...],
    seed: int | None,
    from_scratch: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Fine-tune the network of a search result, with distillation.

    The same command continues a run that was stopped, as in `train`.
    """
    from deploynas.pipeline.finetune import FineTuneOptions, finetune, supernet_of
    from deploynas.progress import silent
    from deploynas.search.result_file import SearchFile
    from deploynas.training.recipe import Recipe

    if (search is None) == (text is None):
        raise InputError("give a search result or `--architecture`, one of them")
    if search is None and supernet is None:
        raise InputError("`--architecture` needs `--supernet`")
    architecture = SearchFile.load(search).network(pick, search) if search else text or ""
    source = supernet or supernet_of(search or Path())
    recipe = Recipe.for_space(_space_name(source), recipe_name, recipe_changes(changes, seed))
    options = FineTuneOptions(recipe, teacher, from_scratch, search, force)
    folder = out or (_beside(search, pick) if search else None)
    first = os.environ.get("RANK", "0") == "0"
    with progress_bar("finetune") as on_progress:
        result = finetune(source, architecture, data, folder, options, on_progress if first else silent)
    if first:
        _report(result, as_json)


def _beside(search: Path, pick: int) -> Path:
    """The file's name without its ending; a network that is not the first gets a folder of its own."""
    folder = search.with_suffix("")
    return folder if pick == 1 else folder.with_name(f"{folder.name}-{pick}")


def _space_name(source: Path) -> str:
    """Of a supernet, without loading its weights: the recipe may be named for it."""
    from deploynas.files import parse_json
    from deploynas.pipeline.supernet import find_supernet
    from deploynas.supernet.checkpoint_file import CheckpointFile

    return parse_json(find_supernet(source).with_suffix(".json"), CheckpointFile).space["name"]


def _report(result: FinetuneResult, as_json: bool) -> None:
    seconds = seconds_since_start()
    if as_json:
        print_json(
            {
                "network": str(result.path),
                "architecture": str(result.architecture),
                "inherited_accuracy": result.inherited_accuracy,
                "validation_accuracy": result.validation_accuracy,
                "test_accuracy": result.test_accuracy,
                "seconds": round(seconds, 1),
            }
        )
    else:
        figures = (
            ("with inherited weights", result.inherited_accuracy),
            ("fine-tuned, validation", result.validation_accuracy),
            ("fine-tuned, test", result.test_accuracy),
        )
        rows = [(name, f"{100 * value:.2f} %") for name, value in figures if value is not None]
        print_table(("accuracy", ""), rows)
    say("already fine-tuned; --force starts over" if result.resumed else f"fine-tuned in {seconds:.0f} s")
    say(f"wrote {result.path}")
    say(f"next: deploynas export {result.path} --device cpu-1t")
