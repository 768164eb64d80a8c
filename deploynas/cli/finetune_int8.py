"""`deploynas finetune --int8`: the network that was fine-tuned, trained on in the 8 bits of a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import progress_bar, say
from deploynas.cli.options import with_options
from deploynas.errors import InputError

if TYPE_CHECKING:
    from deploynas.device import Device
    from deploynas.pipeline.finetune_int8 import Int8Options
    from deploynas.training.quantized_tuning import QuantizedTuningResult

DEVICE = "cpu-1t-int8"

with_int8_options = with_options(
    click.option(
        "--int8", "int8_device", is_flag=False, flag_value=DEVICE, metavar="[DEVICE]",
        help=f"Then train on in 8 bits as this device has them.  [without a name: {DEVICE}]",
    ),
    click.option(
        "--int8-epochs", type=click.IntRange(min=1), metavar="N",
        help="Shorthand for --set int8.epochs=N.  [default: a tenth of the others]",
    ),
)  # fmt: skip


def int8_changes(int8_device: str | None, epochs: int | None) -> list[str]:
    """To the recipe."""
    if epochs is None:
        return []
    if int8_device is None:
        raise InputError("`--int8-epochs` needs `--int8`")
    return [f"int8.epochs={epochs}"]


def is_network(path: Path | None) -> bool:
    """Whether it is what `finetune` wrote, rather than a search result."""
    return path is not None and (path.is_dir() or path.suffix == ".safetensors")


def required(device: Device | None, not_with_it: list[str]) -> Device:
    """What a network that is fine-tuned already needs, and what it has no use for."""
    if device is None:
        raise InputError(
            "a network that is fine-tuned already can only be trained on in 8 bits: `--int8`",
            hint="a search result is fine-tuned from the weights that it inherits",
        )
    if not_with_it:
        raise InputError(f"{', '.join(not_with_it)}: not with a network that is fine-tuned already")
    return device


def train_on(network: Path, device: Device, options: Int8Options) -> QuantizedTuningResult:
    from deploynas.pipeline.finetune_int8 import finetune_int8

    with progress_bar(f"finetune in 8 bits for {device.name}") as on_progress:
        return finetune_int8(network, device, options, on_progress)


def document(result: QuantizedTuningResult, device: Device) -> dict[str, object]:
    """For programs."""
    return {
        "weights": str(result.path),
        "device": device.name,
        "calibrated_accuracy": result.calibrated_accuracy,
        "validation_accuracy": result.validation_accuracy,
        "test_accuracy": result.test_accuracy,
    }


def figures(result: QuantizedTuningResult) -> tuple[tuple[str, float | None], ...]:
    """For the table of accuracies."""
    return (
        ("8 bits as calibrated, validation", result.calibrated_accuracy),
        ("8 bits as trained, validation", result.validation_accuracy),
        ("8 bits as trained, test", result.test_accuracy),
    )


def say_written(result: QuantizedTuningResult) -> None:
    if result.resumed:
        say("already trained in 8 bits; --force starts over")
    if result.validation_accuracy < result.calibrated_accuracy:
        say(
            f"warning: 8 bits are no better as trained than as calibrated; without {result.path.name} and its JSON "
            "file `export` calibrates"
        )
    say(f"wrote {result.path}")
