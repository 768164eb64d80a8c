"""`deploynas devices`: what can be measured on here."""

from __future__ import annotations

import click

from deploynas.cli.console import json_option, print_json, print_table, say


@click.command("devices")
@json_option
def command(as_json: bool) -> None:
    """List device profiles and whether this machine can run them."""
    from deploynas.device import Device, shipped
    from deploynas.errors import InputError
    from deploynas.latency.hardware import hardware, require_hardware
    from deploynas.latency.session import require_provider

    rows = []
    for path in shipped():
        device = Device.load(path)
        try:
            require_hardware(device)
            require_provider(device)
            status = "ready"
        except InputError as error:
            status = error.message.removeprefix(f"device `{device.name}` ")
        rows.append((device, status))
    if as_json:
        print_json(
            {
                "hardware": hardware().model_dump(),
                "devices": [{**device.describe(), "hash": device.hash, "status": status} for device, status in rows],
            }
        )
        return
    found = hardware()
    say(f"this machine: {found.processor}, {found.cores} cores, {found.memory_gib} GiB")
    print_table(
        ["device", "provider", "threads", "batch", "precision", "statistic", "status"],
        [(d.name, d.provider, d.threads, d.batch, d.precision, d.statistic, status) for d, status in rows],
    )
    say("next: `deploynas profile --device cpu-1t --space imagenet`")
