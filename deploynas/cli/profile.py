"""`deploynas profile`: the latency table of a space on this machine."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.console import json_option, print_json, print_table, progress_bar, say
from deploynas.cli.next_commands import after_profile
from deploynas.cli.options import device_option, out_option

if TYPE_CHECKING:
    from deploynas.latency.form_choice import FormChoice
    from deploynas.latency.table import LatencyTable


@click.command("profile")
@device_option
@click.option("--space", "space_name", default="fashion", show_default=True, help="Preset, or a YAML file.")
@out_option("Where to write the table.  [default: profiles/DEVICE.SPACE.json]")
@click.option("--seed", default=0, show_default=True, help="Chooses the whole networks and the order of measuring.")
@click.option("--force", is_flag=True, help="Measure again even if the table is there.")
@json_option
def command(device_name: str, space_name: str, out: Path | None, seed: int, force: bool, as_json: bool) -> None:
    """Measure every block configuration of a space on a device.

    Ctrl-C is safe: the same command resumes where it stopped.
    """
    from deploynas.device import Device
    from deploynas.pipeline.profile import doubt_about, existing_table, profile_to
    from deploynas.space import Space

    device, space = Device.load(device_name), Space.load(space_name)
    path = out or Path("profiles") / f"{device.name}.{space.name}.json"
    if path.exists() and not force:
        table = existing_table(path, device, space)
        say(f"{path} is there already; `--force` measures again")
    else:
        with progress_bar(f"profiling {space.name} on {device.name}") as on_progress:
            table = profile_to(path, device, space, seed, on_progress)
        say(f"wrote {path}")
    if as_json:
        print_json({"path": str(path), **summary(table)})
        return
    _print(table)
    doubt = doubt_about(table, "`--force` measures again")
    if doubt:
        say(doubt)
    say(f"next: {after_profile(path, space, space_name)}")


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
