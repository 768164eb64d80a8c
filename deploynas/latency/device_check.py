"""Can this machine run a device, and does it compute the right thing? The first question on a new board.

A small network is loaded in every precision that the provider can run, its output compared with the CPU's, and the
runtime asked which provider runs its nodes. Then threads are counted while they work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel

from deploynas.device import Device
from deploynas.errors import DeployNASError
from deploynas.latency.agreement import TOLERANCE, cpu_outputs, difference, require_bf16
from deploynas.latency.conditions import Conditions
from deploynas.latency.entry import Entry, build
from deploynas.latency.facts import facts_here, lacking_instructions, require_hardware, require_provider
from deploynas.latency.hardware import hardware
from deploynas.latency.processor_cores import pin
from deploynas.latency.provider_session import prepare_process, thread_count
from deploynas.latency.session import Session
from deploynas.latency.throttling import doubts
from deploynas.providers import CPU, Precision
from deploynas.space import Space

SMALL_SPACE, LARGE_SPACE = "fashion", "imagenet"
RUNS = 50
WORKING_S = 1.0
_SATURATES = (
    "integer kernels of processors without VNNI add two products in 16 bits, which saturates with 8-bit weights: "
    "`export` writes them with 7 bits for this device, or unsigned"
)


class Checked(BaseModel):
    """One question about a device, and its answer."""

    name: str
    outcome: Literal["ok", "warning", "failed"]
    found: str
    hint: str | None = None


def check_device(device: Device) -> Iterator[Checked]:
    """The answers, each as it is found; after one without which nothing can work, no more."""
    facts = facts_here()
    try:
        require_hardware(device, facts.hardware)
        require_provider(device, facts.providers)
        prepare_process(device)
        if device.cores is not None:
            pin(device.cores)
    except DeployNASError as error:
        yield Checked(name="machine and provider", outcome="failed", found=error.message, hint=error.hint)
        return
    runtime = facts.versions.get("onnxruntime", "of unknown version")
    about = f"{facts.hardware.processor}; {device.provider_name} of ONNX Runtime {runtime}"
    yield Checked(name="machine and provider", outcome="ok", found=about)
    yield from _conditions(facts.conditions)
    with tempfile.TemporaryDirectory(prefix="deploynas-") as folder:
        for precision in get_args(Precision):
            yield _precision(device, precision, Path(folder) / f"{precision}.onnx")
        yield from _threads(device, Path(folder) / "large.onnx")


def _conditions(now: Conditions) -> Iterator[Checked]:
    """Clocks and what is set; what to mend before anything is measured."""
    clocks = [
        " ".join(filter(None, (clock.unit, f"{clock.now_mhz} MHz" if clock.now_mhz else None, clock.governor)))
        for clock in now.clocks
    ]
    found = "; ".join(clocks) or "this machine tells of no clock"
    found += f"; {now.temperature_c:.0f} degrees" if now.temperature_c is not None else ""
    wrong = doubts(now)
    yield Checked(name="clocks", outcome="warning" if wrong else "ok", found=found, hint="; ".join(wrong) or None)


def _precision(device: Device, precision: Precision, path: Path) -> Checked:
    """Whether a network in this precision loads, runs on the provider, and computes what the CPU does."""
    asked = device.precision == precision
    reason = device.record.why_not(precision) or lacking_instructions(device, precision, hardware())
    if reason:
        return Checked(name=precision, outcome="failed" if asked else "ok", found=f"not run: {reason}")
    path.write_bytes(_network(SMALL_SPACE, device, precision))
    try:
        opened_on = device.model_copy(update={"precision": precision})
        session = Session(path, opened_on)
        off, placed = _off(session, path, opened_on), session.placement()
        median_ms = float(np.median(session.time_ms(RUNS).took_ms))
    except DeployNASError as error:
        return Checked(name=precision, outcome="failed" if asked else "warning", found=error.message, hint=error.hint)
    found = f"off by {off:.1e} of the CPU's output (at most {TOLERANCE[precision]:g} is rounding); {median_ms:.3g} ms"
    if placed:
        found += "; " + ", ".join(f"{count} nodes on {name}" for name, count in placed.items())
    if not off <= TOLERANCE[precision]:
        hint = (
            _SATURATES if device.provider_name == CPU else "do not trust it in this precision: it is another function"
        )
        return Checked(name=precision, outcome="failed" if asked else "warning", found=found, hint=hint)
    return Checked(name=precision, outcome="ok", found=found)


def _off(session: Session, path: Path, device: Device) -> float:
    precision = device.precision
    expected, found = cpu_outputs(path, session.fed, emulated=precision == "int8"), session.outputs()
    if precision == "bf16":
        for name, value in found.items():
            require_bf16(value, expected[name], device)
    return max(difference(value, expected[name]) for name, value in found.items())


def _threads(device: Device, path: Path) -> Iterator[Checked]:
    """How many threads compute, in a network large enough for several."""
    if not device.record.shares_cpu:
        return
    asked = thread_count(device)
    path.write_bytes(_network(LARGE_SPACE, device, "fp32"))
    try:
        session = Session(path, device.model_copy(update={"precision": "fp32"}))
    except DeployNASError as error:
        yield Checked(name="threads", outcome="warning", found=error.message, hint=error.hint)
        return
    session.run()
    before, begun = _computed(), time.perf_counter()
    while time.perf_counter() < begun + WORKING_S:
        session.run()
    spent = sorted((seconds - before.get(thread, 0.0) for thread, seconds in _computed().items()), reverse=True)
    working = sum(seconds > 0.02 * spent[0] for seconds in spent)  # on a busy machine some are seldom scheduled
    found = f"{asked} asked for, {working} worked"
    if working > asked:
        yield Checked(name="threads", outcome="failed", found=found, hint="the provider takes more than it was given")
    elif working < asked:
        yield Checked(name="threads", outcome="warning", found=found, hint="fewer cores than that, or they were taken")
    else:
        yield Checked(name="threads", outcome="ok", found=found)


def _computed() -> dict[int, float]:
    """Seconds that every thread of this process has computed: others' work on the machine does not change who did."""
    import psutil

    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}


def _network(space_name: str, device: Device, precision: Precision) -> bytes:
    """With the device's own entries' way of writing, and ranges that values fill."""
    space = Space.load(space_name)
    choices = [list(stage) for stage in space.heaviest().choices]
    entry = Entry(key="checked", kind="network", choices=choices)
    written = build(entry, space, device.model_copy(update={"precision": precision}), compared=True)
    assert isinstance(written, bytes)
    return written
