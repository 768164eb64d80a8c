"""`deploynas prune`: fewer expansion channels, until the network keeps a latency that is measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.cli.options import device_option, out_option, recipe_changes, with_recipe_options

if TYPE_CHECKING:
    from deploynas.pipeline.prunable import Prunable, PrunableTransformer
    from deploynas.report.pruned import PrunedFile
    from deploynas.training.recipe import Recipe

METHODS = ("exact", "device-aware", "gates", "magnitude", "random")


@click.command("prune")
@click.argument("network")
@click.option("--max-latency-ms", type=float, metavar="MS", help="The budget; exit code 3 if the file misses it.")
@click.option("--ratio", type=float, metavar="X", help="The share of its measured latency that is to go: 0.4.")
@click.option(
    "--method", type=click.Choice(METHODS),
    help="Solved for, from importance and measured latencies; gates under a penalty in milliseconds; plain gates; or "
    "without any learning.  [default: exact; of a transformer, gates]",
)  # fmt: skip
@device_option
@click.option("--data", help="As for `train`.  [default: what it was fine-tuned on]")
@click.option("--input-size", type=click.IntRange(8), help="Of a timm model.  [default: its own]")
@click.option(
    "--widths", default=12, show_default=True, type=click.IntRange(2), help="Widths of a block to measure, at most."
)
@click.option(
    "--gate-epochs", default=1, show_default=True, type=click.IntRange(1), help="Over the images, to rank channels."
)
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(1, 20),
    help="Choices of widths to measure until one is within the budget.",
)  # fmt: skip
@click.option("--runs", default=300, show_default=True, type=click.IntRange(10), help="Timed inferences of each file.")
@out_option("Folder.  [default: pruned/NETWORK]", folder=True)
@with_recipe_options
@click.option("--force", is_flag=True, help="Start over instead of continuing what is in the folder.")
@json_option
def command(
    network: str,
    max_latency_ms: float | None,
    ratio: float | None,
    method: str | None,
    device_name: str,
    data: str | None,
    input_size: int | None,
    out: Path | None,
    recipe_name: str | None,
    changes: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    **effort: Any,
) -> None:
    """Prune a trained network to a latency on a device, fine-tune it, and time it again.

    NETWORK is what `finetune` wrote, or `timm:NAME` or `timm:NAME:WEIGHTS` for a model made of our kinds of block, or a
    vision transformer.
    Pruned by magnitude and at random to the same latency, it stands beside the result.
    """
    from deploynas.device import Device
    from deploynas.pipeline.prunable import PrunableTransformer, open_prunable
    from deploynas.pipeline.prune import RESULT, TABLE, PruneSettings, Pruning, PruningTarget, prune, require_held
    from deploynas.pipeline.prune_transformer import TransformerPruning, prune_transformer

    target, device = PruningTarget(max_latency_ms, ratio), Device.load(device_name)
    opened = open_prunable(network, data, input_size)
    recipe = _recipe(opened, recipe_name, recipe_changes(changes, seed))
    folder = out or Path("pruned") / opened.name
    with progress_bar(f"prune {opened.name}") as on_progress:
        if isinstance(opened, PrunableTransformer):
            settings = PruneSettings(method or "gates", recipe=recipe, **effort)
            file = prune_transformer(TransformerPruning(opened, device, folder, settings), target, on_progress)
        else:
            settings = PruneSettings(method or "exact", recipe=recipe, **effort)
            file = prune(Pruning(opened, device, folder, settings), target, on_progress)
    _report(file, as_json)
    say(f"wrote {folder / file.pruned.file}, {folder / RESULT}")
    require_held(file)
    again = f"export {folder} --latency {folder / TABLE}"
    if isinstance(opened, PrunableTransformer):
        again = f"bench {folder / file.pruned.file}"
    say(f"next: deploynas {again} --device {device_name}")


def _recipe(network: Prunable | PrunableTransformer, name: str | None, changes: list[str]) -> Recipe:
    """The network's own with the temperature of the method, unless another one is given whole."""
    from deploynas.training.recipe import Recipe

    if name is not None:
        return Recipe.load(name, changes)
    return network.recipe.changed(["finetune.distillation.temperature=4", *changes])


def _report(file: PrunedFile, as_json: bool) -> None:
    from deploynas.outcome import outcome_words
    from deploynas.report.numbers import count, ms, percent
    from deploynas.report.pruned_words import comparison

    if as_json:
        print_json(file.model_dump(by_alias=True, mode="json"))
    else:
        rows = [
            (
                f"{one.method} ({one.role})" if one.role == "control" else one.method,
                percent(one.before_finetuning),
                percent(one.validation_accuracy),
                percent(one.test_accuracy),
                count(one.params),
                count(one.macs),
                ms(one.predicted_ms),
                ms(one.timing.undisturbed.latency_ms),
                ms(one.timing.clock.p50_ms),
                f"{one.faster:.2f}x" if one.faster else "",
            )
            for one in file.networks
        ]
        accuracies = ("before tuning", "validation", "test")
        latencies = ("predicted", "undisturbed", "as it was (median)", "faster")
        print_table((f"on {file.device.name}", *accuracies, "params", "MACs", *latencies), rows)
    pairs = zip(file.pruned.widths, file.original.widths, strict=True)
    say(f"widths of {file.method}: {', '.join(f'{kept}/{before}' for kept, before in pairs)}")
    for control in file.controls:
        say(comparison(file.pruned, control))
    for warning in file.warnings:
        say(click.style("warning: ", fg="yellow", bold=True) + warning)
    say(outcome_words(file.pruned.timing, file.budget_ms, file.device.budget))
