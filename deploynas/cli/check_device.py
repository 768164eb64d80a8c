"""`deploynas devices --check DEVICE`: the first thing to type on a new board. Exit code 3 if it cannot run it."""

from __future__ import annotations

from deploynas.cli.console import print_json, print_table, say
from deploynas.errors import GateError


def check_device(name: str, as_json: bool) -> None:
    """Of the machine that the device file names."""
    from deploynas.device import Device
    from deploynas.latency.target import target_of

    device = Device.load(name)
    found = []
    for checked in target_of(device, say).check():
        say(f"{checked.name}: {checked.outcome}")
        found.append(checked)
    if as_json:
        print_json({"device": device.name, "checks": [one.model_dump() for one in found]})
    else:
        rows = [(one.name, one.outcome, one.found) for one in found]
        print_table([device.name, "outcome", "found"], rows, words=("outcome", "found"))
    for one in found:
        if one.hint:
            say(f"hint: {one.name}: {one.hint}")
    failed = [one.name for one in found if one.outcome == "failed"]
    if failed:
        raise GateError(f"`{device.name}` cannot be trusted on this machine: {', '.join(failed)} failed")
    say(f"next: deploynas profile --device {name} --space fashion")
