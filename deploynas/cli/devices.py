"""`deploynas devices`: what can be measured on here, and what there is to measure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploynas.cli.check_device import check_device
from deploynas.cli.console import json_option, print_json, print_table, say

if TYPE_CHECKING:
    from deploynas.device import Device
    from deploynas.latency.facts import Facts

READY = "ready"
ELSEWHERE = "elsewhere; `--connect` asks"


@click.command("devices")
@click.option("--connect", is_flag=True, help="Ask the machines of devices that are elsewhere, too.")
@click.option("--check", "checked", metavar="DEVICE",
              help="Only ask whether its machine can run this device, and right. Exit code 3 if not.")  # fmt: skip
@json_option
def command(connect: bool, checked: str | None, as_json: bool) -> None:
    """List device profiles and whether their machine can run them; and the spaces and estimators that ship."""
    if checked:
        check_device(checked, as_json)
        return
    from deploynas.accuracy.shipped_estimators import SHIPPED
    from deploynas.device import device_files
    from deploynas.latency.facts import facts_here
    from deploynas.latency.hardware import hardware
    from deploynas.space import PRESETS

    here = cache(facts_here)  # this machine is the same for all
    listed = [(name, path, *_examined(path, connect, here)) for name, path in device_files().items()]
    found = hardware()
    if as_json:
        rows = [
            {**device.describe(), "host": device.host, "hash": device.hash, "status": status}
            if device
            else {"name": name, "status": status}
            for name, _, device, status in listed
        ]
        estimators = [{"name": e.name, "space": e.space, "about": e.about} for e in SHIPPED.values()]
        print_json({"hardware": found.model_dump(), "devices": rows, "spaces": list(PRESETS), "estimators": estimators})
        return
    say(f"this machine: {found.processor}, {found.physical_cores or found.cores} cores, {found.memory_gib} GiB")
    print_table(
        ["device", "host", "provider", "threads", "batch", "precision", "statistic", "status"],
        [
            (d.name, d.host or "", d.provider, d.threads, d.batch, d.precision, d.statistic, status)
            if d
            else (name, *[""] * 6, f"broken: {path}")
            for name, path, d, status in listed
        ],
    )
    for _, path, device, status in listed:
        if device is None:
            say(f"warning: {path} cannot be used: {status.removeprefix('broken: ')}")
    ready = [name for name, _, _, status in listed if status == READY]
    say(f"spaces that ship: {', '.join(PRESETS)}; or a YAML file of yours")
    for one in SHIPPED.values():
        say(f"estimators that ship, for `search` without any training: {one.name} ({one.about}, space {one.space})")
    if ready:
        simplest = min(ready, key=lambda name: (len(name), name))
        say(f"next: deploynas profile --device {simplest} --space fashion")
        for one in SHIPPED.values():
            say(f"  or: deploynas profile --device {simplest} --space {one.space}, then search with {one.name}")


def _examined(path: Path, connect: bool, here: Callable[[], Facts]) -> tuple[Device | None, str]:
    """The device, unless its file is broken, and whether its machine can run it."""
    from deploynas.device import Device
    from deploynas.errors import DeployNASError, InputError
    from deploynas.latency.facts import require_runnable
    from deploynas.latency.target import target_of

    try:
        device = Device.load(path)
    except InputError as error:
        return None, f"broken: {error.message}"
    if device.host and not connect:
        return device, ELSEWHERE
    try:
        if device.host:
            target_of(device).facts()
        else:
            require_runnable(device, here())
        return device, READY
    except DeployNASError as error:
        return device, error.message.removeprefix(f"device `{device.name}` ")
