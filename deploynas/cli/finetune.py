"""`deploynas finetune`: the network that was found, with the weights it inherits, taught by the heaviest one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli import finetune_int8
from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say, seconds_since_start
from deploynas.cli.options import out_option, recipe_changes, supernet_help, with_recipe_options
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.device import Device
    from deploynas.training.finetune import FinetuneResult
    from deploynas.training.quantized_tuning import QuantizedTuningResult


@click.command("finetune")
@click.argument("search", type=click.Path(path_type=Path), required=False, metavar="[SEARCH.json|NETWORK]")
@click.option("--pick", type=click.IntRange(min=1), default=1, show_default=True, help="Which of the file's networks.")
@click.option("--architecture", "text", help="A network in timm's notation, instead of a search result.")
@click.option("--supernet", type=click.Path(path_type=Path), metavar="RUN",
              help=f"{supernet_help}  [default: that of the search's estimator, or runs/SPACE]")  # fmt: skip
@click.option("--data", help="As for `train`.  [default: what the supernet was trained on]")
@click.option("--teacher", metavar="FILE|timm:NAME[:WEIGHTS]", help="Who teaches.  [default: w_h beside the supernet]")
@out_option("Folder.  [default: beside SEARCH.json]", folder=True)
@with_recipe_options
@finetune_int8.with_int8_options
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
    int8_device: str | None,
    int8_epochs: int | None,
    from_scratch: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Fine-tune the network of a search result, with distillation.

    The same command continues a run that was stopped, as in `train`. With `--int8` the network is then trained on in 8
    bits, and `export` takes those weights for its 8-bit file; NETWORK, which `finetune` wrote, is only trained on.
    """
    from deploynas.device import Device
    from deploynas.pipeline.finetune import FineTuneOptions, finetune, supernet_of
    from deploynas.pipeline.finetune_int8 import Int8Options
    from deploynas.progress import silent
    from deploynas.search.result_file import SearchFile
    from deploynas.training.recipe import Recipe

    device = Device.load(int8_device) if int8_device else None
    all_changes = (*recipe_changes(changes, seed), *finetune_int8.int8_changes(int8_device, int8_epochs))
    in_8_bits = Int8Options(None, all_changes, teacher, data, supernet, force=force)
    if search is not None and finetune_int8.is_network(search):
        given = {"--pick": pick != 1, "--architecture": text, "--out": out, "--from-scratch": from_scratch}
        device = finetune_int8.required(device, [name for name, value in given.items() if value])
        own = Recipe.load(recipe_name) if recipe_name else None
        _report(None, as_json, device, finetune_int8.train_on(search, device, replace(in_8_bits, recipe=own)))
        return
    if (search is None) == (text is None):
        raise InputError("give a search result or `--architecture`, one of them")
    if search is None and supernet is None:
        raise InputError("`--architecture` needs `--supernet`")
    architecture = SearchFile.load(search).network(pick, search) if search else text or ""
    source = supernet or supernet_of(search or Path())
    recipe = Recipe.for_space(_space_name(source), recipe_name, all_changes)
    options = FineTuneOptions(recipe, teacher, from_scratch, search, force)
    folder = out or (_beside(search, pick) if search else None)
    first = os.environ.get("RANK", "0") == "0"
    with progress_bar("finetune") as on_progress:
        result = finetune(source, architecture, data, folder, options, on_progress if first else silent)
    if first:
        in_8_bits = replace(in_8_bits, recipe=recipe, supernet=source)
        trained = finetune_int8.train_on(result.path, device, in_8_bits) if device else None
        _report(result, as_json, device, trained)


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


def _report(
    result: FinetuneResult | None,
    as_json: bool,
    device: Device | None = None,
    trained: QuantizedTuningResult | None = None,
) -> None:
    """Of the fine-tuning, if there was one, and of the training in 8 bits, if that was asked for."""
    seconds = seconds_since_start()
    if as_json:
        found = _document(result) if result else {}
        if trained and device:
            found["int8"] = finetune_int8.document(trained, device)
        print_json({**found, "seconds": round(seconds, 1)})
    else:
        figures = [*(_figures(result) if result else ()), *(finetune_int8.figures(trained) if trained else ())]
        rows = [(name, f"{100 * value:.2f} %") for name, value in figures if value is not None]
        print_table(("accuracy", ""), rows)
    if result:
        say("already fine-tuned; --force starts over" if result.resumed else f"fine-tuned in {seconds:.0f} s")
        say(f"wrote {result.path}")
    if trained:
        finetune_int8.say_written(trained)
    network = result.path if result else trained.path.with_name("network.safetensors") if trained else None
    say(f"next: deploynas export {network} --device {device.name if device else 'cpu-1t'}")


def _document(result: FinetuneResult) -> dict[str, object]:
    return {
        "network": str(result.path),
        "architecture": str(result.architecture),
        "inherited_accuracy": result.inherited_accuracy,
        "validation_accuracy": result.validation_accuracy,
        "test_accuracy": result.test_accuracy,
    }


def _figures(result: FinetuneResult) -> tuple[tuple[str, float | None], ...]:
    return (
        ("with inherited weights", result.inherited_accuracy),
        ("fine-tuned, validation", result.validation_accuracy),
        ("fine-tuned, test", result.test_accuracy),
    )
