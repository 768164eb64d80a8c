"""`deploynas export`: a fine-tuned network as a bundle that keeps its budget on the device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli import export_ensemble
from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.cli.options import device_option, out_option, supernet_help, wishes_of, with_bundle_options
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from deploynas.pipeline.delivery import Delivery
    from deploynas.report.document import ReportFile


@click.command("export")
@click.argument("network", type=click.Path(path_type=Path))
@device_option
@click.option("--max-latency-ms", type=float, help="The budget.  [default: the search's, or the device file's]")
@click.option(
    "--also-on", multiple=True, metavar="DEVICE[:MS]", help="A further device, with a bundle of its own; repeatable."
)
@click.option("--latency", multiple=True, type=click.Path(path_type=Path), metavar="TABLE", help="More latency tables.")
@click.option("--search", type=click.Path(path_type=Path), help="The search result it came from.")
@click.option("--supernet", type=click.Path(path_type=Path), metavar="RUN",
              help=f"What it came from. {supernet_help}")  # fmt: skip
@click.option("--data", help="As for `train`.  [default: what it was fine-tuned on]")
@export_ensemble.member_option
@click.option("--untrained", is_flag=True, help="NETWORK is a search result; ship its network with random weights.")
@click.option("--pick", type=click.IntRange(min=1), default=1, show_default=True, help="Of `--untrained`: which one.")
@out_option("Folder; each device gets a bundle in it.", folder=True, default=Path("bundles"))
@with_bundle_options
@json_option
def command(
    network: Path,
    device_name: str,
    max_latency_ms: float | None,
    also_on: tuple[str, ...],
    latency: tuple[Path, ...],
    search: Path | None,
    supernet: Path | None,
    data: str | None,
    members: tuple[Path, ...],
    untrained: bool,
    pick: int,
    out: Path,
    as_json: bool,
    **options: object,
) -> None:
    """Export a fine-tuned network, verify it, time it on the device, and bundle it.

    NETWORK is what `finetune` wrote. Over budget, a smaller network is solved for, fine-tuned and tried; exit code 3
    if none is within the budget after --rounds. With `--untrained` NETWORK is what `search` wrote: the file is verified
    and timed like any other, since latency does not depend on the weights, and says that it is untrained.

    An ensemble that `search --ensemble` found becomes one averaging file (serial) or a file per member (parallel).
    """
    from deploynas.device import Device
    from deploynas.pipeline.export import ExportOptions, export_for, open_network
    from deploynas.pipeline.limits import require_budget, split_budget
    from deploynas.report.index import write_index

    if not untrained and export_ensemble.is_ensemble(network):
        export_ensemble.refuse({**options, "also_on": also_on, "search": search, "latency": latency})
        ensemble = export_ensemble.shipment(network, supernet, data, device_name, members, max_latency_ms)
        export_ensemble.export(ensemble, out, as_json, options)
        return
    if members:
        raise InputError("`--member` is for an ensemble that `search --ensemble` found")
    first = (device_name, None if max_latency_ms is None else require_budget(max_latency_ms))
    wanted = [(Device.load(name), budget) for name, budget in [first, *(split_budget(text) for text in also_on)]]
    wishes = wishes_of(options)  # its mistakes before anything is written
    network = _with_random_weights(network, data, pick, search) if untrained else _not_a_search_result(network)
    asked = ExportOptions(wishes, data, supernet, search, latency)
    opened = open_network(network, asked)
    delivered, missed = list["Delivery"](), list[str]()
    for device, budget in wanted:
        try:
            with progress_bar(f"export for {device.name}") as on_progress:
                delivered.append(export_for(opened, device, out / device.name, budget, asked.wishes, on_progress))
        except GateError as error:
            if len(wanted) == 1:
                raise
            missed.append(f"{device.name}: {error.message}")
            say(f"error: {missed[-1]}")
    show([delivery.report for delivery in delivered], as_json)
    if delivered:
        say(f"wrote {write_index(out)}")
    say_bundles(delivered)
    if options["strict"]:
        require_by_the_clock(delivered)
    if missed:
        raise GateError("; ".join(missed), hint="the other devices' bundles were written")


def _with_random_weights(found: Path, data: str | None, pick: int, search: Path | None) -> Path:
    from deploynas.pipeline.export import untrained_network

    if search is not None:
        raise InputError("`--untrained` takes the search result itself", hint=f"`export {search} --untrained`")
    if found.is_dir() or found.suffix != ".json":
        raise InputError(f"{found}: `--untrained` takes a search result", hint="`deploynas search --out found.json`")
    network = untrained_network(found, data, pick)
    say(f"wrote {network}, untrained")
    return network


def _not_a_search_result(network: Path) -> Path:
    from deploynas.files import read_schema

    if network.suffix == ".json" and network.is_file() and read_schema(network) == "deploynas/search-result":
        raise InputError(
            f"{network} is a search result, whose networks have no weights yet",
            hint=f"`deploynas finetune {network}` gives them some, `--untrained` ships them without",
        )
    return network


def say_bundles(delivered: Sequence[Delivery]) -> None:
    """Where bundles are, and what to do with one."""
    for delivery in delivered:
        say(f"wrote {delivery.folder}; look at {delivery.folder / 'report.html'}")
    if delivered:
        say(f"next: deploynas report {delivered[0].folder} --markdown")


def require_by_the_clock(delivered: Sequence[Delivery]) -> None:
    """`--strict`: held undisturbed is not enough."""
    late = [delivery.report.title for delivery in delivered if delivery.report.outcome == "held undisturbed"]
    if late:
        raise GateError(
            f"held undisturbed, but not on the machine as it was: {', '.join(late)}",
            hint="the bundles were written; a longer --patience, a larger budget, or a quieter machine",
        )


def show(reports: Sequence[ReportFile], as_json: bool) -> None:
    """One row per file, both latencies in it; then what became of each budget."""
    from deploynas.report.accuracy_words import accuracy_words
    from deploynas.report.gain_words import headline, verdict
    from deploynas.report.latency_words import AS_IT_WAS, UNDISTURBED, held, median_ms, undisturbed_ms, waited
    from deploynas.report.numbers import change, ms, percent, size

    if as_json:
        print_json([report.model_dump(by_alias=True, mode="json") for report in reports])
        return
    rows = []
    for report in reports:
        for file in report.files:
            gated, predicted = file is report.shipped, file is report.predicted_file
            rows.append(
                (
                    f"{report.device.name} {file.precision}",
                    percent(report.test_accuracy) if file.precision == "fp32" and report.test_accuracy else "",
                    accuracy_words(report, file),
                    ms(report.predicted_ms) if predicted else "",
                    ms(undisturbed_ms(report, file)),
                    ms(median_ms(file)),
                    ms(report.budget_ms) if gated else "",
                    change(report.prediction_error) if predicted else "",
                    size(file.size_bytes),
                )
            )
    latencies = ("predicted", UNDISTURBED, f"{AS_IT_WAS} (median)", "budget", "prediction off by")
    print_table(("", "accuracy, test", "validation", *latencies, "size"), rows)
    for report in reports:
        checked, found = report.verification, held(report)
        if found:
            say(f"{report.device.name}: the budget of {found.budget} is {found.phrase}")
        if report.waits:
            say(f"{report.device.name}: {waited(report)}")
        say(
            f"{report.device.name}: torch and ONNX Runtime differ by {checked.max_difference:.1e} at batches "
            f"{', '.join(map(str, checked.batches))} (tolerance {checked.tolerance:.1e}), "
            f"same top-1 on {checked.images} images"
        )
        if report.calibration and report.calibration.method == "trained":
            say(f"{report.device.name}: int8: weights and ranges as `finetune --int8` trained them")
        for sentence in (*(one.words for one in report.verdicts), headline(report), verdict(report)):
            if sentence:
                say(f"{report.device.name}: {sentence}")
        for warning in report.warnings:
            say(f"warning: {report.device.name}: {warning}")
