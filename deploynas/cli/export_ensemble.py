"""`export` of an ensemble that `search --ensemble` found: one averaging file, or a file for each member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import print_json, print_table, progress_bar, say
from deploynas.cli.options import Values
from deploynas.errors import GateError, InputError

if TYPE_CHECKING:
    from deploynas.pipeline.export_ensemble import EnsembleExport, EnsembleShipment

member_option = click.option(
    "--member",
    "members",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="NETWORK",
    help="Of an ensemble: a fine-tuned member, one for each, in their order.  [default: inherited weights]",
)


def is_ensemble(network: Path) -> bool:
    from deploynas.files import read_schema
    from deploynas.search.result_file import SearchFile

    if network.suffix != ".json" or not network.is_file() or read_schema(network) != "deploynas/search-result":
        return False
    return SearchFile.load(network).ensemble is not None


def refuse(given: Values) -> None:
    """Options that are for single networks."""
    for name in (
        "also_on",
        "search",
        "latency",
        "int8",
        "fp16",
        "bf16",
        "triton",
        "ort_package",
        "license",
        "base_model",
        "compare",
    ):
        if given[name]:
            raise InputError(f"`--{name.replace('_', '-')}` is for single networks, not for an ensemble")


def shipment(
    found: Path, supernet: Path | None, data: str | None, device_name: str, members: Sequence[Path],
    budget_ms: float | None,
) -> EnsembleShipment:  # fmt: skip
    from deploynas.device import Device
    from deploynas.pipeline.export_ensemble import EnsembleShipment
    from deploynas.pipeline.supernet import open_supernet

    if supernet is None:
        raise InputError("an ensemble is exported with its supernet", hint="`--supernet RUN`")
    opened = open_supernet(supernet, data)
    return EnsembleShipment(found, opened, Device.load(device_name), tuple(members), budget_ms)


def export(wanted: EnsembleShipment, out: Path, as_json: bool, options: Values) -> None:
    wanted = replace(wanted, patience_s=options["patience_s"], sign=options["sign"])  # type: ignore[arg-type]
    with progress_bar(f"export for {wanted.device.name}") as on_progress:
        made = wanted.deliver(out / wanted.device.name, on_progress)
    show(wanted, made, as_json)
    if options["strict"] and not made.strict:
        raise GateError("held undisturbed, but not on the machine as it was", hint="the files were written")


def show(wanted: EnsembleShipment, made: EnsembleExport, as_json: bool) -> None:
    from deploynas.outcome import outcome_words
    from deploynas.report.numbers import change, ms, size

    if as_json:
        print_json(made.document.model_dump(by_alias=True))
    else:
        alone = [network.limits[0].predicted for network in made.document.networks]
        predicted = alone if len(made.files) > 1 else [wanted.ensemble.latency_ms]
        rows = []
        for result, expected in zip(made.files, predicted, strict=True):
            assert result.timing, "it was measured just now"
            quiet, clock = result.timing.undisturbed.latency_ms, result.timing.clock.p50_ms
            bytes_ = (made.folder / result.model).stat().st_size
            rows.append([result.model, ms(expected), ms(quiet), ms(clock), change(expected / quiet - 1), size(bytes_)])
        columns = ["", "predicted", "undisturbed", "as it was (median)", "prediction off by", "size"]
        print_table(columns, rows)
    for result in made.files:
        assert result.timing, "it was measured just now"
        say(f"{result.model}: {outcome_words(result.timing, wanted.budget, wanted.device.budget)}")
    if made.checked:
        say(
            f"the mean of its members' files, to {made.checked.max_difference:.1e} of a probability on "
            f"{made.checked.images} validation images; softmax of its output is that mean"
        )
    else:
        say("timed one at a time: members that run at once share memory and caches, which the figures do not have")
    if not wanted.fine_tuned:
        say("weights are inherited from the supernet: `finetune --pick N` each member, then `--member` for each")
    say(f"wrote {made.folder}")
