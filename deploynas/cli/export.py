"""`deploynas export`: a fine-tuned network as a bundle that keeps its budget on the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from deploynas.report.document import ReportFile
    from deploynas.shipping.delivery import Delivery, Wishes

bundle_options = [
    click.option("--int8", is_flag=True, help="Also an 8-bit file, calibrated with training images."),
    click.option(
        "--calibration-share",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.05,
        show_default=True,
        help="Fraction of the training images that 8-bit ranges come from.",
    ),
    click.option(
        "--calibration-method",
        type=click.Choice(["minmax", "percentile", "mse"]),
        default="mse",
        show_default=True,
        help="How 8-bit ranges are chosen.",
    ),
    click.option("--per-channel/--per-tensor", default=True, show_default=True, help="Scales of 8-bit weights."),
    click.option(
        "--max-accuracy-drop",
        type=click.FloatRange(0, 1),
        default=0.01,
        show_default=True,
        help="Refuse an 8-bit file that loses more (a fraction: 0.01 is one point).",
    ),
    click.option("--opset", type=int, default=17, show_default=True, help="ONNX operator set."),
    click.option("--triton", is_flag=True, help="Add a Triton model repository."),
    click.option(
        "--rounds",
        type=click.IntRange(1, 20),
        default=3,
        show_default=True,
        help="Networks to try at most until one is within the budget.",
    ),
]


def with_bundle_options(function: Any) -> Any:
    for option in reversed(bundle_options):
        function = option(function)
    return function


def wishes_of(options: dict[str, Any]) -> Wishes:
    """What the options of `with_bundle_options` ask for."""
    from deploynas.export.calibration import Calibration
    from deploynas.shipping.delivery import Wishes

    calibration = Calibration(options["calibration_method"], options["calibration_share"], options["per_channel"])
    return Wishes(
        calibration=calibration if options["int8"] else None,
        max_accuracy_drop=options["max_accuracy_drop"],
        opset=options["opset"],
        triton=options["triton"],
        rounds=options["rounds"],
    )


@click.command("export")
@click.argument("network", type=click.Path(path_type=Path))
@click.option("--device", "device_name", default="cpu-1t", show_default=True, help="Name in devices/, or a YAML file.")
@click.option("--max-latency-ms", type=float, help="The budget.  [default: the search's, or the device file's]")
@click.option(
    "--also-on", multiple=True, metavar="DEVICE[:MS]", help="A further device, with a bundle of its own; repeatable."
)
@click.option("--latency", multiple=True, type=click.Path(path_type=Path), metavar="TABLE", help="More latency tables.")
@click.option("--search", "search_path", type=click.Path(path_type=Path), help="The search result it came from.")
@click.option("--supernet", type=click.Path(path_type=Path), help="The supernet it came from.")
@click.option("--data", help="As for `train`.  [default: what it was fine-tuned on]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bundles"),
    show_default=True,
    help="Folder; each device gets a bundle in it.",
)
@with_bundle_options
@json_option
def command(
    network: Path,
    device_name: str,
    max_latency_ms: float | None,
    also_on: tuple[str, ...],
    latency: tuple[Path, ...],
    search_path: Path | None,
    supernet: Path | None,
    data: str | None,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Export a fine-tuned network, verify it, time it on the device, and bundle it.

    NETWORK is what `finetune` wrote. Over budget, a smaller network is solved for, fine-tuned and tried; exit code 3
    if none is within the budget after --rounds.
    """
    from dataclasses import replace

    from deploynas.report.index import write_index
    from deploynas.shipping.sources import Sources
    from deploynas.supernet.checkpoint import load_checkpoint

    network = network / "network.safetensors" if network.is_dir() else network
    about = load_checkpoint(network).about
    sources = Sources.remembered(about.get("lineage", {}))
    if search_path:
        sources = sources.with_search(search_path)
    if supernet:
        sources = replace(sources, supernet=supernet)
    sources = sources.with_tables(latency)
    data = data or about.get("data", {}).get("name")
    if not data:
        raise InputError(f"{network} does not say what it was trained on", hint="give `--data`")
    wishes = wishes_of(options)
    delivered, missed = [], []
    for name, budget in [(device_name, max_latency_ms), *(split_budget(text) for text in also_on)]:
        try:
            delivered.append(_deliver(network, name, budget, data, out, wishes, sources))
        except GateError as error:
            if not also_on:
                raise
            missed.append(f"{name}: {error.message}")
            say(f"error: {missed[-1]}")
    if delivered:
        say(f"wrote {write_index(out)}")
    show([delivery.report for delivery in delivered], as_json)
    for delivery in delivered:
        say(f"wrote {delivery.folder}; look at {delivery.folder}/report.html")
    if missed:
        raise GateError("; ".join(missed), hint="the other devices' bundles were written")


def _deliver(
    network: Path, device_name: str, budget: float | None, data: str, out: Path, wishes: Wishes, sources: Any
) -> Delivery:
    from deploynas.device import Device
    from deploynas.shipping.candidates import Candidates, inheriting
    from deploynas.shipping.delivery import deliver
    from deploynas.shipping.sources import budget_of
    from deploynas.supernet.checkpoint import load_checkpoint

    device, checkpoint = Device.load(device_name), load_checkpoint(network)
    space = checkpoint.space
    table = sources.table_of(device, space)
    with progress_bar(f"export for {device.name}") as on_progress:
        folder = network.parent / "again" / device.name
        again = inheriting(sources, data, folder, checkpoint.about.get("recipe") or {}, on_progress)
        candidates = Candidates(device, space, sources, table, again, given=network)
        return deliver(candidates, budget_of(device, table, budget), data, out / device.name, wishes, on_progress)


def split_budget(text: str) -> tuple[str, float | None]:
    """`cpu-1t:2.5` or `cpu-1t`."""
    name, colon, budget = text.rpartition(":")
    if not colon:
        return text, None
    try:
        return name, float(budget)
    except ValueError:
        raise InputError(f"`{text}`: `{budget}` is not a budget in milliseconds", hint="like `cpu-1t:2.5`") from None


def show(reports: list[ReportFile], as_json: bool) -> None:
    """One row a file."""
    from deploynas.report.numbers import change, ms, percent, size

    if as_json:
        print_json([report.model_dump(by_alias=True) for report in reports])
        return
    rows = []
    for report in reports:
        for file in report.files:
            gated = file.precision == report.gated
            rows.append(
                (
                    f"{report.device['name']} {file.precision}",
                    percent(file.accuracy),
                    ms(report.predicted_ms) if gated else "",
                    f"{ms(file.latency_ms)} ± {percent(file.relative_error, 1)}",
                    ms(report.budget_ms) if gated else "",
                    change(report.prediction_error) if gated else "",
                    size(file.size_bytes),
                )
            )
    print_table(("", "accuracy", "predicted", "measured", "budget", "prediction off by", "size"), rows)
    for report in reports:
        checked = report.verification
        say(
            f"{report.device['name']}: torch and ONNX Runtime differ by {checked['max_difference']:.1e} at batches "
            f"{', '.join(map(str, checked['batches']))} (tolerance {checked['tolerance']:.1e}), "
            f"same top-1 on {checked['images']} images"
        )
        for warning in report.warnings:
            say(f"warning: {report.device['name']}: {warning}")
