"""`deploynas train`: the one-shot supernet, on one machine or, under torchrun, on many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say, seconds_since_start
from deploynas.cli.options import out_option, recipe_changes, with_recipe_options

if TYPE_CHECKING:
    from deploynas.pipeline.train import TrainedRun

SHOWN_SKIPPED = 10


@click.command("train")
@click.option("--space", "space_name", default="fashion", show_default=True, help="Preset or YAML file.")
@click.option(
    "--data",
    default="fashion-mini",
    show_default=True,
    help="fashion-mini, fashion-mnist[:DIR], cifar10:DIR, folder:DIR, or a timm name (torch/cifar100:DIR).",
)
@out_option("Folder of the run.  [default: runs/SPACE]", folder=True)
@with_recipe_options
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
    from deploynas.pipeline.run_folder import RunFolder
    from deploynas.pipeline.train import train
    from deploynas.space import Space
    from deploynas.training.recipe import Recipe

    space = Space.load(space_name)
    recipe = Recipe.for_space(space.name, recipe_name, recipe_changes(changes, seed))
    folder = out or RunFolder.of_space(space.name).path
    if os.environ.get("RANK", "0") != "0":
        train(space, data, folder, recipe, force)
        return
    with progress_bar(f"train {space.name}") as on_progress:
        run = train(space, data, folder, recipe, force, on_progress)
    _report(run, as_json)


def _report(run: TrainedRun, as_json: bool) -> None:
    result, networks, seconds = run.result, run.result.subnetworks, seconds_since_start()
    if as_json:
        print_json(
            {
                "run": str(run.path),
                "folder": str(result.folder),
                "w_h_accuracy": result.w_h_accuracy,
                "subnetworks": networks.model_dump(),
                "skipped": list(result.skipped),
                "seconds": round(seconds, 1),
            }
        )
    else:
        spread = f"{100 * networks.lowest:.1f} to {100 * networks.highest:.1f}"
        sampled = f"w*, {networks.networks} random sub-networks"
        rows = [
            ("w_h, the heaviest network", f"{100 * result.w_h_accuracy:.2f}", "", ""),
            (sampled, f"{100 * networks.mean:.2f}", f"{100 * networks.std:.2f}", spread),
        ]
        print_table(("validation accuracy", "mean %", "std, points", "range %"), rows)
    for name in result.skipped[:SHOWN_SKIPPED]:
        say(f"skipped, cannot be read: {name}")
    if result.skipped:
        say(f"{len(result.skipped)} files were skipped")
    say("already trained; --force starts over" if result.resumed else f"trained in {seconds:.0f} s")
    say(f"wrote {run.w_h}, {run.w_star}, {run.supernet / 'metrics.jsonl'}")
    say(f"next: deploynas estimate --supernet {run.path}")
