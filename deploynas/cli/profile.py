"""`deploynas profile`: the latency table of a space on a device, or on several at the same time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bars, say
from deploynas.cli.next_commands import after_profile
from deploynas.cli.options import DEFAULT_DEVICE, devices_option, out_option
from deploynas.cli.verify_table import verify_table

if TYPE_CHECKING:
    from deploynas.device import Device
    from deploynas.latency.form_choice import FormChoice
    from deploynas.latency.table import LatencyTable


@click.command("profile")
@devices_option
@click.option("--space", "space_name", default="fashion", show_default=True, help="Preset, or a YAML file.")
@out_option("Where to write the table, of one device.  [default: profiles/DEVICE.SPACE.json]")
@click.option("--seed", default=0, show_default=True, help="Chooses the whole networks and the order of measuring.")
@click.option("--force", is_flag=True, help="Measure again even if the table is there.")
@click.option("--verify", "table", type=click.Path(path_type=Path), metavar="TABLE",
              help="Only time some networks of this table again: does it still hold? Exit code 3 if not.")  # fmt: skip
@json_option
def command(
    device_names: tuple[str, ...],
    space_name: str,
    out: Path | None,
    seed: int,
    force: bool,
    table: Path | None,
    as_json: bool,
) -> None:
    """Measure every block configuration of a space on a device, or on several.

    Devices on different hosts are measured at the same time, those of one machine one after the other. Ctrl-C is safe:
    the same command resumes where it stopped.
    """
    from deploynas.device import Device
    from deploynas.errors import DeployNASError
    from deploynas.pipeline.profile import existing_table, profile_to
    from deploynas.pipeline.several_hosts import on_every_device, one_error
    from deploynas.progress import OnProgress
    from deploynas.space import Space

    if table:
        verify_table(table, _given(device_names), as_json)
        return
    devices, space = [Device.load(name) for name in device_names or [DEFAULT_DEVICE]], Space.load(space_name)
    _require_apart(devices, out)

    def place(device: Device) -> Path:
        return out or Path("profiles") / f"{device.name}.{space.name}.json"

    def measured(device: Device, on_progress: OnProgress) -> LatencyTable:
        path = place(device)
        if there[path]:
            return existing_table(path, device, space)
        return profile_to(path, device, space, seed, on_progress)

    there = {place(device): place(device).exists() and not force for device in devices}
    with progress_bars([f"profiling {space.name} on {_words(device)}" for device in devices]) as progress:
        found = on_every_device(devices, measured, progress)
    tables = {place(d): table for d, table in zip(devices, found, strict=True) if not isinstance(table, DeployNASError)}
    for path in tables:
        say(f"{path} is there already; `--force` measures again" if there[path] else f"wrote {path}")
    _show(tables, as_json, alone=len(devices) == 1)
    failed = [(d, error) for d, error in zip(devices, found, strict=True) if isinstance(error, DeployNASError)]
    if failed:
        raise one_error(failed)
    if not as_json:
        say(f"next: {after_profile(place(devices[0]), space, space_name)}")


def _given(device_names: tuple[str, ...]) -> Device | None:
    """The one device that was named, if any."""
    from deploynas.device import Device

    if len(device_names) > 1:
        raise click.BadParameter("one at a time with --verify", param_hint="--device")
    return Device.load(device_names[0]) if device_names else None


def _require_apart(devices: Sequence[Device], out: Path | None) -> None:
    """Tables of two devices must not become one file."""
    if out and len(devices) > 1:
        raise click.BadParameter("is for one device; tables of several are named after them", param_hint="--out")
    names = [device.name for device in devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise click.BadParameter(f"two devices are called `{twice}`", param_hint="--device")


def _words(device: Device) -> str:
    return f"{device.name} ({device.host})" if device.host else device.name


def _show(tables: Mapping[Path, LatencyTable], as_json: bool, alone: bool) -> None:
    from deploynas.pipeline.profile import doubt_about

    if as_json:
        documents = [{"path": str(path), **summary(table)} for path, table in tables.items()]
        if documents or not alone:
            print_json(documents[0] if alone else {"tables": documents})
        return
    for table in tables.values():
        _print(table)
        doubt = doubt_about(table, "`--force` measures again")
        if doubt:
            say(doubt)


def summary(table: LatencyTable) -> dict:
    """What a person or a CI job wants to know of a table."""
    evidence = table.evidence
    extremes = {"smallest": table.space.smallest(), "heaviest": table.space.heaviest()}
    result: dict = {
        "space": table.space.name,
        "device": table.device_name,
        "predicted_ms": {name: table.predict(architecture) for name, architecture in extremes.items()},
    }
    if evidence:
        networks = [*evidence.validation.networks, *evidence.correction.networks]
        result |= {
            "entries": len(evidence.parts),
            "unstable": [m.name for m in [*evidence.parts, *networks] if not m.stable],
            "forms": evidence.forms.model_dump(),
            "correction": evidence.correction.method,
            "held_out_error": evidence.correction.held_out_error,
            "validation": evidence.validation.model_dump(exclude={"networks"})
            | {"networks": len(evidence.validation.networks)},
            "disturbance": statistics.median(m.disturbance for m in [*evidence.parts, *networks]),
            "provenance": evidence.provenance,
        }
    return result


def forms_in_words(choice: FormChoice) -> str:
    """What was chosen; of what was tried and not kept, how fast it was."""
    if not choice.trials:
        return "the default, nothing to choose"
    told = []
    for trial in choice.trials:
        kept = getattr(choice.chosen, trial.operation) == trial.form
        found = trial.verdict if trial.ratio is None else f"{trial.ratio:.3f} of the default's time"
        told.append(f"{trial.operation}: {trial.form if kept else f'not {trial.form}'} ({found})")
    return ", ".join(told)


def _print(table: LatencyTable) -> None:
    evidence = table.evidence
    predicted = summary(table)["predicted_ms"]
    rows = [
        ("smallest network, predicted", f"{predicted['smallest']:.3f} ms"),
        ("heaviest network, predicted", f"{predicted['heaviest']:.3f} ms"),
    ]
    if evidence:
        check = evidence.validation
        found = summary(table)
        rows += [
            ("distinct parts measured", str(len(evidence.parts))),
            ("forms of operators", forms_in_words(evidence.forms)),
            ("correction chosen", evidence.correction.method),
            (f"error on {len(check.networks)} whole networks never fitted on, mean", f"{100 * check.mean_error:.2f} %"),
            ("the same, worst", f"{100 * check.max_error:.2f} %"),
            ("rank agreement (Kendall tau)", "-" if check.kendall_tau is None else f"{check.kendall_tau:.3f}"),
            ("entries still unstable (marked in the file)", str(len(found["unstable"]))),
            ("machine slower than undisturbed, taken out", f"{100 * (found['disturbance'] - 1):.0f} %"),
            ("time", f"{evidence.provenance['duration_s']} s"),
        ]
    print_table([f"{table.space.name} on {table.device_name}", ""], rows)
