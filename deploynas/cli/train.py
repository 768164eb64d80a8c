"""`deploynas train`: the one-shot supernet, on one machine or, under torchrun, on many."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say

if TYPE_CHECKING:
    from deploynas.training.oneshot import TrainingResult

SHOWN_SKIPPED = 10


@click.command()
@click.option("--space", "space_name", default="fashion", show_default=True, help="Preset or YAML file.")
@click.option(
    "--data",
    default="fashion-mini",
    show_default=True,
    help="fashion-mini, fashion-mnist[:DIR], cifar10:DIR, folder:DIR, or a timm name (torch/cifar100:DIR).",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the run.  [default: runs/SPACE]",
)
@click.option("--recipe", "recipe_name", help="Preset or YAML file.  [default: named as the space, or fashion]")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a value of the recipe, like w_h.epochs=3.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Shorthand for --set seed=…")
@click.option("--force", is_flag=True, help="Start over instead of continuing what is in the folder.")
@json_option
def command(
    space_name: str,
    data: str,
    out: Path | None,
    recipe_name: str | None,
    changes: tuple[str, ...],
    seed: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Train the heaviest network, then every sub-network of the space in one set of weights.

    The same command continues a run that was stopped. On several processes:
    `torchrun --nproc-per-node 2 -m deploynas train …`
    """
    from deploynas.space import Space
    from deploynas.training.oneshot import train_supernet
    from deploynas.training.recipe import PRESETS, Recipe

    space = Space.load(space_name)
    preset = space.name if space.name in PRESETS else "fashion"
    recipe = Recipe.load(recipe_name or preset, [*changes, *([f"seed={seed}"] if seed is not None else [])])
    out = out or Path("runs") / space.name
    first = os.environ.get("RANK", "0") == "0"
    start = time.monotonic()
    if first:
        with progress_bar(f"train {space.name}") as on_progress:
            result = train_supernet(space, data, out, recipe, force, on_progress)
        _report(result, time.monotonic() - start, data, as_json)
    else:
        train_supernet(space, data, out, recipe, force)


def _report(result: TrainingResult, seconds: float, data: str, as_json: bool) -> None:
    networks = result.subnetworks
    if as_json:
        print_json(
            {
                "folder": str(result.folder),
                "w_h_accuracy": result.w_h_accuracy,
                "subnetworks": vars(networks),
                "skipped": list(result.skipped),
                "seconds": round(seconds, 1),
            }
        )
    else:
        spread = f"{100 * networks.lowest:.1f} to {100 * networks.highest:.1f}"
        rows = [
            ("w_h, the heaviest network", f"{100 * result.w_h_accuracy:.2f}", "", ""),
            (
                f"w*, {networks.networks} random sub-networks",
                f"{100 * networks.mean:.2f}",
                f"{100 * networks.std:.2f}",
                spread,
            ),
        ]
        print_table(("validation accuracy", "mean %", "std, points", "range %"), rows)
    for name in result.skipped[:SHOWN_SKIPPED]:
        say(f"skipped, cannot be read: {name}")
    if result.skipped:
        say(f"{len(result.skipped)} files were skipped")
    say("already trained; --force starts over" if result.resumed else f"trained in {seconds:.0f} s")
    folder = result.folder
    say(f"wrote {folder}/w_h.safetensors, {folder}/w_star.safetensors, {folder}/metrics.jsonl")
    say(f"next: deploynas estimate --supernet {folder}/w_star.safetensors --data {data}")
