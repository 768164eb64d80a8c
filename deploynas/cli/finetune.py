"""`deploynas finetune`: the network that was found, with the weights it inherits, taught by the heaviest one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.space import Architecture
    from deploynas.training.finetune import FinetuneResult


@click.command("finetune")
@click.argument("search", type=click.Path(path_type=Path), required=False, metavar="[SEARCH.json]")
@click.option("--pick", type=click.IntRange(min=1), default=1, show_default=True, help="Which of the file's networks.")
@click.option("--architecture", "text", help="A network in timm's notation, instead of a search result.")
@click.option(
    "--supernet",
    type=click.Path(path_type=Path),
    help="Weights to inherit, from `train`.  [default: runs/SPACE/w_star.safetensors]",
)
@click.option("--data", help="As for `train`.  [default: what the supernet was trained on]")
@click.option("--teacher", metavar="FILE|timm:NAME[:WEIGHTS]", help="Who teaches.  [default: w_h beside the supernet]")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder.  [default: beside SEARCH.json]")
@click.option("--recipe", "recipe_name", help="Preset or YAML file.  [default: named as the space, or fashion]")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change the recipe, like finetune.distillation.weight=0.7.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Shorthand for --set seed=…")
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
    from deploynas.progress import silent
    from deploynas.shipping.sources import remember
    from deploynas.space import Architecture
    from deploynas.supernet.checkpoint import load_checkpoint
    from deploynas.training.finetune import finetune
    from deploynas.training.recipe import PRESETS, Recipe

    if (search is None) == (text is None):
        raise InputError("give a search result or `--architecture`, one of them")
    found = _picked(search, pick) if search else None
    if supernet is None:
        if found is None:
            raise InputError("`--architecture` needs `--supernet`")
        supernet = Path("runs") / found.space.name / "w_star.safetensors"
    trained = load_checkpoint(supernet)
    architecture = found or Architecture.parse(text or "", trained.space)
    preset = trained.space.name if trained.space.name in PRESETS else "fashion"
    recipe = Recipe.load(recipe_name or preset, [*changes, *([f"seed={seed}"] if seed is not None else [])])
    data = data or trained.about.get("data", {}).get("name")
    if not data:
        raise InputError(f"{supernet} does not say what it was trained on", hint="give `--data`")
    out = out or (search.with_suffix("") if search else Path("runs") / f"{trained.space.name}-finetuned")
    first = os.environ.get("RANK", "0") == "0"
    start = time.monotonic()
    with progress_bar("finetune") as on_progress:
        result = finetune(
            supernet,
            architecture,
            data,
            out,
            recipe,
            teacher=teacher,
            from_scratch=from_scratch,
            lineage=remember(search, supernet, teacher),
            force=force,
            on_progress=on_progress if first else silent,
        )
    if first:
        _report(result, time.monotonic() - start, as_json)


def _picked(path: Path, pick: int) -> Architecture:
    from deploynas.search.result_file import SearchFile

    file = SearchFile.load(path)
    networks = file.networks or [record.own for record in file.each]
    if pick > len(networks):
        raise InputError(f"{path} has {len(networks)} networks, there is no number {pick}")
    return file.the_space().architecture(networks[pick - 1].choices)


def _report(result: FinetuneResult, seconds: float, as_json: bool) -> None:
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
